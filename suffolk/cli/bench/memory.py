"""Measure a datastore larger than memory: its cold start, latency and page faults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.bench.report_options import WorkdirOptions
from suffolk.cli.options.setting import REQUIRED, argument, option, passed_on
from suffolk.datastore.datastore import RESIDENCIES
from suffolk.datastore.settings import Count

EXAMPLES = "suffolk bench memory STORE --limits 1 0.5 0.2 --json memory.json"


@dataclass(frozen=True, kw_only=True)
class Options(WorkdirOptions):
    store: Path = argument(REQUIRED, "a datastore's folder, on the disk to be measured", metavar="STORE")
    limits: tuple[float, ...] = option(
        (1.0, 0.5, 0.2), "share of the store that memory may hold; 1 sets no limit", metavar="SHARE", several=True
    )
    residency: tuple[str, ...] = option(("mmap", "warm"), "policies to measure", choices=RESIDENCIES, several=True)
    queries: Count = option(1000, "contexts")
    rounds: Count = option(2, "rounds after the cold one")


def run(options: Options) -> int:
    from suffolk.benchmarks.memory.measure import MemoryOptions, measure_memory
    from suffolk.benchmarks.memory.report import NOTES, PACKAGES, memory_panels, memory_parts

    outcome = options.outcome("memory")
    workdir = options.folder(outcome)
    settings = passed_on(options, MemoryOptions, workdir=workdir, residencies=options.residency)
    results = measure_memory(settings)
    return outcome.finish(settings, results, NOTES, PACKAGES, memory_parts(results), memory_panels(results))
