"""Plain decoding against each drafter.

Ctrl-C ends it early: the prompts that every drafter has done by then are reported, marked as a part, and the exit code is 130."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from suffolk.cli.drafter_options import add_drafter_options, read_drafter_config
from suffolk.cli.filled import filled, filled_path
from suffolk.cli.model_options import add_device_options
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
    from suffolk.benchmarks.prompts import STYLES

    parser.add_argument(
        "--model", type=filled, required=True, help="model folder in the Hugging Face layout, or hub name"
    )
    parser.add_argument(
        "--prompts", required=True, nargs="+", type=filled_path, metavar="PATH", help=".jsonl files, or folders of them"
    )
    add_drafter_options(parser, without=["token-recycling"])  # which would know the answers of earlier rounds
    parser.add_argument(
        "--drafters",
        metavar="LIST",
        help="separated by commas (default: all that can run); useless: drafts that are never right",
    )
    parser.add_argument(
        "--slowed",
        type=float,
        default=0.0,
        metavar="MS",
        help="let every call for drafts take so much longer, to see that they are given up (default: %(default)s)",
    )
    parser.add_argument("--style", choices=STYLES, default="both", help="for rows with a prefill (default: both)")
    parser.add_argument("--limit", type=int, metavar="N", help="prompts of each file, chosen at random (default: all)")
    parser.add_argument(
        "--max-new-tokens", type=int, default=128, metavar="N", help="longest answer (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="runs of all prompts (default: %(default)s)")
    parser.add_argument(
        "--transformers",
        action="store_true",
        help="run transformers' own generate and its prompt lookup too, on an untouched copy of the model",
    )
    parser.add_argument(
        "--assistant", metavar="MODEL", help="with --transformers: the model of its assisted generation too"
    )
    parser.add_argument(
        "--control", action="store_true", help="run plain decoding twice, to show how large the noise is"
    )
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0: greedy (default: %(default)s)")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P", help="1: no limit (default: %(default)s)")
    parser.add_argument("--ignore-eos", action="store_true", help="do not end at the model's end-of-text tokens")
    parser.add_argument("--max-nodes", type=int, default=64, metavar="N", help="largest tree (default: %(default)s)")
    add_device_options(parser)
    parser.add_argument(
        "--costs",
        type=filled_path,
        metavar="FILE",
        help="what 'suffolk profile' measured (default: what it stored, or a quick look)",
    )
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
    """What the command line asks for."""
    from suffolk.benchmarks.decode.options import DecodingOptions

    models = read_drafter_config(args)
    found = [*(["datastore"] if args.datastore else []), *models.parts()]
    possible = ",".join(["prompt-lookup", *found, *(["hybrid"] if found else [])])
    return DecodingOptions(
        model=args.model,
        prompts=tuple(args.prompts),
        datastores=tuple(args.datastore),
        models=models,
        drafters=tuple(part for part in (args.drafters or possible).split(",") if part),
        slowed_ms=args.slowed,
        style=args.style,
        limit=args.limit,
        rounds=args.rounds,
        control=args.control,
        transformers=args.transformers or args.assistant is not None,
        assistant=args.assistant,
        max_new_tokens=args.max_new_tokens,
        temperature=args.temperature,
        top_p=args.top_p,
        ignore_eos=args.ignore_eos,
        seed=args.seed,
        max_nodes=args.max_nodes,
        dtype=args.dtype,
        device=args.device,
        threads=args.threads,
        costs=args.costs,
        record=args.record,
    )
