"""Throughput and memory of building."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = ("--tokenizer MODEL_FOLDER src/ --json build.json",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options."""
    parser.add_argument("corpora", nargs="+", metavar="CORPUS", help="file, folder or pattern with text")
    parser.add_argument(
        "--tokenizer", required=True, metavar="TOK", help="Hugging Face folder, tokenizer.json or hub name"
    )
    parser.add_argument(
        "--text-field", default="text", metavar="NAME", help="field or column with the text (default: text)"
    )
    parser.add_argument(
        "--extensions", default="", metavar="LIST", help="take only these from folders, such as .py,.md"
    )
    parser.add_argument(
        "--rounds", type=int, default=1, metavar="N", help="runs of each, in turn (default: %(default)s)"
    )
    parser.add_argument(
        "--threads", type=int, default=0, metavar="N", help="for suffolk build and its sort (default: every core)"
    )
    parser.add_argument(
        "--sort-tokens",
        type=int,
        nargs="*",
        default=[20_000_000, 80_000_000],
        metavar="N",
        help="sort the first N tokens alone, beside pydivsufsort; without a number: leave that out "
        "(default: 20000000 80000000, or all there are)",
    )
    parser.add_argument(
        "--sort-rounds", type=int, default=3, metavar="N", help="turns of each way of sorting (default: %(default)s)"
    )
    parser.add_argument(
        "--sort-repeats",
        type=int,
        default=10_000_000,
        metavar="N",
        help="tokens of the inputs that are nothing but repeats; 0 for none (default: %(default)s)",
    )
    parser.add_argument("--workdir", type=Path, metavar="DIR", help="for what is built (default: beside the JSON file)")


def run(args: argparse.Namespace) -> int:
    """Measure, print, write; returns the exit code."""
    from suffolk.benchmarks.building.measure import BuildingOptions, measure_building
    from suffolk.benchmarks.building.report import NOTES, PACKAGES, building_lines, building_panels
    from suffolk.benchmarks.plot import require_plots
    from suffolk.benchmarks.report import Report, plain
    from suffolk.cli.bench.outcome import finish

    require_plots()
    options = BuildingOptions(
        corpora=tuple(args.corpora),
        tokenizer=args.tokenizer,
        workdir=args.workdir or args.json.parent / "suffolk-bench",
        rounds=args.rounds,
        text_field=args.text_field,
        extensions=tuple(part for part in args.extensions.split(",") if part),
        threads=args.threads,
        sort_tokens=tuple(args.sort_tokens),
        sort_rounds=args.sort_rounds,
        sort_repeats=args.sort_repeats,
        seed=args.seed,
    )
    results = measure_building(options)
    report = Report("build", args.seed, plain(options), results, NOTES, PACKAGES)
    return finish(args, report, building_lines(results), building_panels(results))
