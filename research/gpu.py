"""Measures decoding on a CUDA device: single requests, also with transformers, batches, and the bandwidth limit.

Writes decode.json, batch.json and plots into the folder. They hold tokens/s of plain decoding, of each drafter, and of
transformers' generate (plain, compiled with a static cache, with its own drafts). They also hold M, the parts of a step
in milliseconds, the share of the memory-bandwidth limit, and throughput at batch sizes 1 to 64. Exits with 2 without a
CUDA device.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import torch

from research.command import command_parser, run_command
from suffolk.cli.main import main as suffolk
from suffolk.datastore.errors import Unsupported


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(args: argparse.Namespace) -> int:
    """Run both measurements; return the exit code."""
    if not torch.cuda.is_available():
        raise Unsupported("this machine has no CUDA device; run this study on a machine with one")
    common = ["--model", args.model, "--prompts", *args.prompts, "--limit", args.limit, "--device", "cuda"]
    common += ["--dtype", args.dtype, *(["--datastore", args.datastore] if args.datastore else [])]
    rivals = ["--transformers", *(["--assistant", args.assistant] if args.assistant else [])]
    code = suffolk(["bench", "decode", *common, *rivals, "--json", f"{args.output}/decode.json"])
    batches = ["--batches", "1", "2", "4", "8", "16", "32", "64", "--rounds", "2"]
    return code or suffolk(["bench", "batch", *common, *batches, "--json", f"{args.output}/batch.json"])


def _parser() -> argparse.ArgumentParser:
    example = "--model MODEL --datastore STORE --prompts prompts/ --output results/"
    parser = command_parser("gpu", __doc__, example)
    parser.add_argument("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    parser.add_argument(
        "--datastore", metavar="STORE", help="folder of a datastore, or grpc://HOST:PORT/NAME (default: none)"
    )
    parser.add_argument("--assistant", help="draft model for transformers' assisted generation")
    parser.add_argument("--prompts", required=True, nargs="+", metavar="PATH", help=".jsonl files or folders")
    parser.add_argument("--output", default=".", help="folder for the results (default: here)")
    parser.add_argument("--limit", default="20", help="prompts of each file (default: %(default)s)")
    parser.add_argument(
        "--dtype", default="bfloat16", help="auto, float32, bfloat16, float16 or float64 (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
