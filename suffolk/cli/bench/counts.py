"""Compare counts of token sequences and bytes a token with infini-gram on the same tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.bench.report_options import WorkdirOptions
from suffolk.cli.options.setting import REQUIRED, argument, option, passed_on
from suffolk.datastore.settings import Count

EXAMPLES = "suffolk bench counts STORE --lengths 1 2 4 8 --json counts.json"


@dataclass(frozen=True, kw_only=True)
class Options(WorkdirOptions):
    store: Path = argument(REQUIRED, "a datastore's folder", metavar="STORE")
    queries: Count = option(
        1000, "number of sequences of each length that occur; as many again have one token replaced"
    )
    lengths: tuple[Count, ...] = option((1, 2, 4, 8, 16), "tokens in a sequence", several=True)
    rounds: Count = option(3, "number of timed rounds, after one round to warm up")
    tokens: Count | None = option(None, "use only the first N tokens (default: all)")


def run(options: Options) -> int:
    from suffolk.benchmarks.counts.measure import (
        NOTES,
        PACKAGES,
        CountingOptions,
        counting_panels,
        counting_parts,
        measure_counting,
    )

    outcome = options.outcome("counts")
    settings = passed_on(options, CountingOptions, workdir=options.folder(outcome))
    results = measure_counting(settings)
    return outcome.finish(settings, results, NOTES, PACKAGES, counting_parts(results), counting_panels(results))
