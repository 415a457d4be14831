"""A datastore larger than memory: cold start, latency, page faults."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.bench.report_options import WORKDIR, ReportOptions
from suffolk.cli.options.setting import REQUIRED, argument, option, passed_on
from suffolk.datastore.datastore import RESIDENCIES

EXAMPLES = "suffolk bench memory STORE --limits 1 0.5 0.2 --json memory.json"


@dataclass(frozen=True, kw_only=True)
class Options(ReportOptions):
    store: Path = argument(REQUIRED, "a datastore's folder, on the disk to be measured", metavar="STORE")
    limits: tuple[float, ...] = option(
        (1.0, 0.5, 0.2), "share of the store that memory may hold; 1 sets no limit", metavar="SHARE", several=True
    )
    residency: tuple[str, ...] = option(("mmap", "warm"), "policies to measure", choices=RESIDENCIES, several=True)
    queries: int = option(1000, "contexts")
    rounds: int = option(2, "rounds after the cold one")
    workdir: Path | None = option(None, WORKDIR, metavar="DIR")


def run(options: Options) -> int:
    """Measure, print, write; returns the exit code."""
    from suffolk.benchmarks.memory.measure import MemoryOptions, measure_memory
    from suffolk.benchmarks.memory.report import NOTES, PACKAGES, memory_lines, memory_panels
    from suffolk.benchmarks.report import Report, plain

    outcome = options.outcome("memory")
    workdir = options.workdir or outcome.workdir
    settings = passed_on(options, MemoryOptions, workdir=workdir, residencies=options.residency)
    results = measure_memory(settings)
    report = Report("memory", options.seed, plain(settings), results, NOTES, PACKAGES)
    return outcome.finish(report, memory_lines(results), memory_panels(results))
