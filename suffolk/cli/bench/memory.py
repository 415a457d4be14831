"""A datastore larger than memory: cold start, latency, page faults."""

from __future__ import annotations

import argparse
from pathlib import Path

from suffolk.cli.filled import filled_path
from suffolk.datastore.datastore import RESIDENCIES

EXAMPLES = ("STORE --limits 1 0.5 0.2 --json memory.json",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options."""
    parser.add_argument(
        "store", type=filled_path, metavar="STORE", help="a datastore's folder, on the disk to be measured"
    )
    parser.add_argument(
        "--limits",
        type=float,
        nargs="+",
        default=[1.0, 0.5, 0.2],
        metavar="SHARE",
        help="of the store that memory may hold; 1 sets no limit (default: 1 0.5 0.2)",
    )
    parser.add_argument(
        "--residency",
        nargs="+",
        choices=RESIDENCIES,
        default=["mmap", "warm"],
        help="policies to measure (default: mmap warm)",
    )
    parser.add_argument("--queries", type=int, default=1000, metavar="N", help="contexts (default: %(default)s)")
    parser.add_argument(
        "--rounds", type=int, default=2, metavar="N", help="rounds after the cold one (default: %(default)s)"
    )
    parser.add_argument("--workdir", type=Path, metavar="DIR", help="for the contexts (default: beside the JSON file)")


def run(args: argparse.Namespace) -> int:
    """Measure, print, write; returns the exit code."""
    from suffolk.benchmarks.memory.measure import MemoryOptions, measure_memory
    from suffolk.benchmarks.memory.report import NOTES, PACKAGES, memory_lines, memory_panels
    from suffolk.benchmarks.plot import require_plots
    from suffolk.benchmarks.report import Report, plain
    from suffolk.cli.bench.outcome import finish

    require_plots()
    options = MemoryOptions(
        store=args.store,
        workdir=args.workdir or args.json.parent / "suffolk-bench",
        limits=tuple(args.limits),
        residencies=tuple(args.residency),
        queries=args.queries,
        rounds=args.rounds,
        seed=args.seed,
    )
    results = measure_memory(options)
    report = Report("memory", args.seed, plain(options), results, NOTES, PACKAGES)
    return finish(args, report, memory_lines(results), memory_panels(results))
