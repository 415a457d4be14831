"""Measures passes and decoding on a CUDA device: kinds of passes, single requests, batches, and the bandwidth limit.

Writes passes.json, decode.json, batch.json and plots into the folder. passes.json compares kinds of passes: times with 1
to 64 rows and several contexts, kernels a layer, and how many rows and drafted texts equal plain ones bit for bit. The
other files hold tokens/s of plain decoding, of each drafter, and of transformers' generate (plain, compiled with a static
cache, with its own drafts). They also hold M, the parts of a step in milliseconds, the share of the memory-bandwidth
limit, and throughput at batch sizes 1 to 64. Exits with 2 without a CUDA device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from research.command import command_parser, run_command
from research.gpu_passes import compare, show
from suffolk.benchmarks.json_file import write_json
from suffolk.benchmarks.machine import describe_machine
from suffolk.benchmarks.prompts import encode_prompt, load_prompts
from suffolk.cli.main import main as suffolk
from suffolk.datastore.errors import Unsupported
from suffolk.serving.engine.model.passes import KINDS
from suffolk.serving.engine.model.target import Target

PARTS = ("passes", "decode")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    """Run both measurements; return the exit code."""
    if not torch.cuda.is_available():
        raise Unsupported("this machine has no CUDA device; run this study on a machine with one")
    if "passes" in args.parts:
        _compare_passes(args)
    if "decode" not in args.parts:
        return 0
    common = ["--model", args.model, "--prompts", *args.prompts, "--limit", args.limit, "--device", "cuda"]
    common += ["--dtype", args.dtype, *(["--datastore", args.datastore] if args.datastore else [])]
    rivals = ["--transformers", *(["--assistant", args.assistant] if args.assistant else [])]
    code = suffolk(["bench", "decode", *common, *rivals, "--json", f"{args.output}/decode.json"])
    batches = ["--batches", "1", "2", "4", "8", "16", "32", "64", "--rounds", "2"]
    return code or suffolk(["bench", "batch", *common, *batches, "--json", f"{args.output}/batch.json"])


def _compare_passes(args: argparse.Namespace) -> None:
    target = Target.load(args.model, args.dtype, "cuda")
    loaded = load_prompts([Path(path) for path in args.prompts], "chat", int(args.limit), 0)
    prompts = [np.asarray(encode_prompt(each, target.tokenizer, args.model), np.int64) for each in loaded]
    found = [compare(target, kind, prompts, 128) for kind in args.kinds]
    show(found, target.layers)
    results = {"machine": describe_machine(), "passes": [each.to_dict() for each in found]}
    write_json(Path(args.output) / "passes.json", results)


def _parser() -> argparse.ArgumentParser:
    examples = (
        "--model MODEL --prompts prompts/ --output results/ --parts passes",
        "--model MODEL --datastore STORE --prompts prompts/ --output results/",
    )
    parser = command_parser("gpu", __doc__, *examples)
    parser.add_argument("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    parser.add_argument(
        "--datastore", metavar="STORE", help="folder of a datastore, or grpc://HOST:PORT/NAME (default: none)"
    )
    parser.add_argument("--assistant", help="draft model for transformers' assisted generation")
    parser.add_argument("--prompts", required=True, nargs="+", metavar="PATH", help=".jsonl files or folders")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="what is measured (default: %(default)s)"
    )
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=KINDS,
        default=("captured", "graph"),
        help="kinds of passes (default: %(default)s)",
    )
    parser.add_argument("--output", default=".", help="folder for the results (default: here)")
    parser.add_argument("--limit", default="20", help="prompts of each file (default: %(default)s)")
    parser.add_argument(
        "--dtype", default="bfloat16", help="auto, float32, bfloat16, float16 or float64 (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
