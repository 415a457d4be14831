"""Measure insertion, memory and drafts of a live index, compared to the suffix tree of arctic-inference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.bench.report_options import ReportOptions
from suffolk.cli.options.setting import REQUIRED, argument, option, passed_on
from suffolk.datastore.settings import Count

EXAMPLES = "suffolk bench live STORE --against arctic-inference --json live.json"


@dataclass(frozen=True, kw_only=True)
class Options(ReportOptions):
    store: Path = argument(REQUIRED, "a datastore, whose documents are appended", metavar="STORE")
    tokens: Count = option(8_000_000, "tokens to append")
    rival_tokens: int = option(2_000_000, "tokens to append to the other index, which takes more memory")
    document_tokens: Count = option(500, "tokens of a document; longer ones are cut")
    turns: Count = option(8, "parts of the insertion; the indexes take turns")
    rate: Count = option(100_000, "tokens appended a second while drafts are measured")
    queries: Count = option(4_000, "contexts")
    groups: Count = option(100_000, "groups of one document of one token each")
    max_match: Count = option(16, "longest match")
    min_match: Count = option(2, "shortest match")
    max_depth: Count = option(10, "depth of a draft")
    max_nodes: Count = option(64, "nodes of a draft")
    against: str | None = option(None, "also measure this package, on the same tokens", choices=("arctic-inference",))


def run(options: Options) -> int:
    from suffolk.benchmarks.live.measure import measure_live
    from suffolk.benchmarks.live.pieces import LiveBenchOptions
    from suffolk.benchmarks.live.report import NOTES, PACKAGES, live_panels, live_parts

    outcome = options.outcome("live")
    settings = passed_on(options, LiveBenchOptions, against=options.against is not None)
    results = measure_live(settings)
    return outcome.finish(settings, results, NOTES, PACKAGES, live_parts(results), live_panels(results))
