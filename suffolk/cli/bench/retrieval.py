"""Measure the latency of lookups and drafts, in this process and over gRPC."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.bench.report_options import WorkdirOptions
from suffolk.cli.options.setting import REQUIRED, argument, option, passed_on
from suffolk.datastore.settings import Count

EXAMPLES = "suffolk bench retrieval STORE --against draftretriever --grpc --json retrieval.json"


@dataclass(frozen=True, kw_only=True)
class Options(WorkdirOptions):
    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    queries: Count = option(20_000, "contexts of each kind")
    called: Count = option(
        1000, "number of contexts of each kind that are also timed from Python, over gRPC and in draftretriever"
    )
    rounds: Count = option(3, "number of timed rounds, after one round to warm up")
    contexts: tuple[Path, ...] = option(
        (),
        "text or .jsonl files outside the corpus, for the unseen contexts (default: seen contexts with a token replaced)",
        several=True,
    )
    against: str | None = option(None, "also measure this package, on the same tokens", choices=("draftretriever",))
    grpc: bool = option(False, "also measure batches through 'suffolk serve'")
    batches: tuple[Count, ...] = option((1, 8, 32), "numbers of contexts in a call, with --grpc", several=True)
    tokens: Count | None = option(None, "use only the first N tokens (default: all)")
    checked: int = option(20, "number of answers of each kind to check by a scan of all tokens")
    max_nodes: Count = option(64, "nodes in a draft")


def run(options: Options) -> int:
    from suffolk.benchmarks.retrieval.measure import measure_retrieval
    from suffolk.benchmarks.retrieval.options import RetrievalBenchOptions
    from suffolk.benchmarks.retrieval.report import NOTES, PACKAGES, retrieval_panels, retrieval_parts

    outcome = options.outcome("retrieval")
    settings = passed_on(
        options,
        RetrievalBenchOptions,
        workdir=options.folder(outcome),
        unseen=options.contexts,
        against=options.against is not None,
    )
    results = measure_retrieval(settings)
    return outcome.finish(settings, results, NOTES, PACKAGES, retrieval_parts(results), retrieval_panels(results))
