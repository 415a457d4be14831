"""Throughput of the engine by how many requests run at once, with and without drafts.

Ctrl-C ends it early: the batch sizes that every drafter has done by then are reported, marked as a part, and the exit code is
130."""

from __future__ import annotations

import argparse
import sys

from suffolk.cli.bench import decode
from suffolk.datastore.errors import InvalidArgument

EXAMPLES = (
    "--model MODEL_FOLDER --datastore STORE --prompts prompts/ --batches 1 2 4 8 16 --json batch.json",
    "--model MODEL_FOLDER --head HEAD_FOLDER --prompts prompts/ --json batch.json",
    "--model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --prompts prompts/ --json batch.json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options: those of 'bench decode', and the batch sizes."""
    decode.add_arguments(parser)
    parser.add_argument(
        "--batches",
        type=int,
        nargs="+",
        default=[1, 2, 4, 8, 16],
        metavar="N",
        help="requests at once (default: 1 2 4 8 16)",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, print, write; returns the exit code."""
    if args.transformers or args.assistant is not None or args.control or args.record is not None:
        raise InvalidArgument(
            "--transformers, --assistant, --control and --record belong to 'suffolk bench decode'; leave them out"
        )
    from suffolk.benchmarks.batch.measure import measure_batches
    from suffolk.benchmarks.batch.report import NOTES, batch_lines, batch_panels
    from suffolk.benchmarks.decode.report import PACKAGES
    from suffolk.benchmarks.plot import require_plots
    from suffolk.benchmarks.report import Report, plain
    from suffolk.cli.bench.outcome import finish

    require_plots()
    options = decode.read_options(args)
    results = measure_batches(options, args.batches, lambda line: print(line, file=sys.stderr, flush=True))
    report = Report("batch", args.seed, plain(options) | {"batches": args.batches}, results, NOTES, PACKAGES)
    return finish(args, report, batch_lines(results), batch_panels(results))
