"""Counts of token sequences and bytes a token, beside infini-gram on the same tokens."""

from __future__ import annotations

import argparse
from pathlib import Path

from suffolk.cli.filled import filled_path

EXAMPLES = ("STORE --lengths 1 2 4 8 --json counts.json",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options."""
    parser.add_argument("store", type=filled_path, metavar="STORE", help="a datastore's folder")
    parser.add_argument(
        "--queries",
        type=int,
        default=1000,
        metavar="N",
        help="sequences of each length that occur, and as many with a token replaced (default: %(default)s)",
    )
    parser.add_argument(
        "--lengths",
        type=int,
        nargs="+",
        default=[1, 2, 4, 8, 16],
        metavar="N",
        help="tokens in a sequence (default: 1 2 4 8 16)",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, metavar="N", help="timed rounds, after one to warm up (default: %(default)s)"
    )
    parser.add_argument("--tokens", type=int, metavar="N", help="use the first N tokens alone (default: all)")
    parser.add_argument(
        "--workdir",
        type=Path,
        metavar="DIR",
        help="for infini-gram's index, used again (default: beside the JSON file)",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print, write; returns the exit code."""
    from suffolk.benchmarks.counts.measure import CountingOptions, measure_counting
    from suffolk.benchmarks.counts.report import NOTES, PACKAGES, counting_lines, counting_panels
    from suffolk.benchmarks.plot import require_plots
    from suffolk.benchmarks.report import Report, plain
    from suffolk.cli.bench.outcome import finish

    require_plots()
    options = CountingOptions(
        store=args.store,
        workdir=args.workdir or args.json.parent / "suffolk-bench",
        queries=args.queries,
        rounds=args.rounds,
        lengths=tuple(args.lengths),
        tokens=args.tokens,
        seed=args.seed,
    )
    results = measure_counting(options)
    report = Report("counts", args.seed, plain(options), results, NOTES, PACKAGES)
    return finish(args, report, counting_lines(results), counting_panels(results))
