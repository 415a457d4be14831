"""Records a model's plain answers to prompts in a file. Answers already in the file are kept."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from research.command import add_seed, command_parser, run_command
from research.one_tree.along_recordings import recorded_answers
from suffolk.benchmarks.decode.options import DecodingOptions
from suffolk.benchmarks.decode.setup import encode_prompts, load_target
from suffolk.benchmarks.prompts import STYLES, load_prompts
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.recorder import require_recordable

EXAMPLE = "--model MODEL --prompts tuning/ --output tuning.jsonl --temperature 0 0.7"


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    options = DecodingOptions(
        model=args.model,
        prompts=tuple(args.prompts),
        style=args.style,
        max_new_tokens=args.max_new_tokens,
        dtype=args.dtype,
    )
    found = load_prompts(args.prompts, args.style, args.limit, args.seed)
    require_recordable(args.output)
    target = load_target(options)
    prompts, _ = encode_prompts(target, found, options)
    for temperature in args.temperature:
        settings = SamplingSettings(args.max_new_tokens, temperature, seed=args.seed)
        answers = recorded_answers(args.output, target, args.model, prompts, settings)
        tokens = sum(len(answer.generated) for answer in answers)
        print(f"{args.output}: {len(answers)} answers, {tokens:,} tokens, temperature {temperature:g}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("record_answers", __doc__, EXAMPLE)
    add = parser.add_argument
    add("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    add("--prompts", required=True, nargs="+", type=Path, metavar="PATH", help=".jsonl files or folders")
    add("--output", required=True, type=Path, metavar="FILE", help=".jsonl file; new answers are appended")
    add("--style", choices=STYLES, default="both", help="for rows with a prefill (default: both)")
    add("--limit", type=int, metavar="N", help="prompts of each file (default: all)")
    add("--max-new-tokens", type=int, default=128, metavar="N", help="longest answer (default: %(default)s)")
    add("--temperature", type=float, nargs="+", default=[0.0], metavar="T", help="0: greedy (default: 0)")
    add("--dtype", default="auto", help="auto, float32, bfloat16, float16 or float64 (default: as stored)")
    add_seed(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
