"""Plain decoding against each drafter.

Ctrl-C ends it early: the prompts that every drafter has done by then are reported, marked as a part, and the exit code is 130."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from suffolk.cli.bench.decoding_options import add_decoding_options, read_decoding_options
from suffolk.cli.drafter_options import add_drafter_options, read_drafter_config
from suffolk.cli.record_option import add_record_option, require_record

if TYPE_CHECKING:
    from suffolk.benchmarks.decode.options import DecodingOptions

EXAMPLES = (
    "--model MODEL_FOLDER --datastore STORE --prompts prompts/ --limit 10 --json decode.json",
    "--model MODEL_FOLDER --head HEAD_FOLDER --prompts prompts/ --json decode.json",
    "--model MODEL_FOLDER --prompts prompts/ --record texts.jsonl --json decode.json",
    "--model MODEL_FOLDER --draft-model SMALLER_MODEL_FOLDER --prompts prompts/ --json decode.json",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare its options."""
    add_decoding_options(parser)
    add_drafter_options(parser, without=["token-recycling"])  # which would know the answers of earlier rounds
    add = parser.add_argument
    drafters = "separated by commas (default: all that can run); useless: drafts that are never right"
    add("--drafters", metavar="LIST", help=drafters)
    slowed = "let every call for drafts take so much longer, to see that they are given up (default: %(default)s)"
    add("--slowed", type=float, default=0.0, metavar="MS", help=slowed)
    add("--rounds", type=int, default=1, metavar="N", help="runs of all prompts (default: %(default)s)")
    transformers = "run transformers' own generate and its prompt lookup too, on an untouched copy of the model"
    add("--transformers", action="store_true", help=transformers)
    add("--assistant", metavar="MODEL", help="with --transformers: the model of its assisted generation too")
    add("--control", action="store_true", help="run plain decoding twice, to show how large the noise is")
    add("--temperature", type=float, default=0.0, metavar="T", help="0: greedy (default: %(default)s)")
    add("--top-p", type=float, default=1.0, metavar="P", help="1: no limit (default: %(default)s)")
    add_record_option(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, print, write; returns the exit code."""
    from suffolk.benchmarks.decode.measure import measure_decoding
    from suffolk.benchmarks.decode.report import NOTES, PACKAGES, decoding_lines, decoding_panels
    from suffolk.benchmarks.plot import require_plots
    from suffolk.benchmarks.report import Report, plain
    from suffolk.cli.bench.outcome import finish

    require_plots()
    require_record(args.record)
    options = read_options(args)
    results = measure_decoding(options, lambda line: print(line, file=sys.stderr, flush=True))
    report = Report("decode", args.seed, plain(options), results, NOTES, PACKAGES)
    return finish(args, report, decoding_lines(results), decoding_panels(results))


def read_options(args: argparse.Namespace) -> DecodingOptions:
    """The options of the command line."""
    from suffolk.benchmarks.decode.options import DecodingOptions

    models = read_drafter_config(args)
    found = [*(["datastore"] if args.datastore else []), *models.parts()]
    possible = ",".join(["prompt-lookup", *found, *(["hybrid"] if found else [])])
    return DecodingOptions(
        **read_decoding_options(args),
        datastores=tuple(args.datastore),
        models=models,
        drafters=tuple(part for part in (args.drafters or possible).split(",") if part),
        slowed_ms=args.slowed,
        rounds=args.rounds,
        control=args.control,
        transformers=args.transformers or args.assistant is not None,
        assistant=args.assistant,
        temperature=args.temperature,
        top_p=args.top_p,
        record=args.record,
    )
