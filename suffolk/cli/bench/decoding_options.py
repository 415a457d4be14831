"""Options of all measurements that decode: the model, the prompts, the length of answers, and the device."""

from __future__ import annotations

import argparse
from typing import Any

from suffolk.cli.filled import filled, filled_path
from suffolk.cli.model_options import add_device_options


def add_decoding_options(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    from suffolk.benchmarks.prompts import STYLES

    add = parser.add_argument
    add("--model", type=filled, required=True, help="model folder in the Hugging Face layout, or hub name")
    add(
        "--prompts", required=True, nargs="+", type=filled_path, metavar="PATH", help=".jsonl files, or folders of them"
    )
    add("--style", choices=STYLES, default="both", help="for rows with a prefill (default: both)")
    add("--limit", type=int, metavar="N", help="prompts of each file, chosen at random (default: all)")
    add("--max-new-tokens", type=int, default=128, metavar="N", help="longest answer (default: %(default)s)")
    add("--ignore-eos", action="store_true", help="do not end at the model's end-of-text tokens")
    add("--max-nodes", type=int, default=64, metavar="N", help="largest tree (default: %(default)s)")
    add_device_options(parser)
    costs = "what 'suffolk profile' measured (default: what it stored, or a quick look)"
    add("--costs", type=filled_path, metavar="FILE", help=costs)


def read_decoding_options(args: argparse.Namespace) -> dict[str, Any]:
    """Their values, as arguments of ``DecodingOptions``."""
    names = "model style limit max_new_tokens ignore_eos max_nodes dtype device threads costs seed"
    return {"prompts": tuple(args.prompts)} | {name: getattr(args, name) for name in names.split()}
