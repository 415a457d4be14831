"""Times a forward pass over a draft tree with masked and split attention in turn, in CPU seconds of one thread."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch

from research.command import check_timing, command_parser, cpu_clock, run_command
from research.some_passes import binary_tree, filled_cache
from suffolk.datastore.files import write_json
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.model import tree_attention
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.target_loader import DTYPES
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout

EXAMPLES = ("--model MODEL --dtype bfloat16 --contexts 8000 16000",)
LEAST_PAIRS = {"masked": sys.maxsize, "split": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(options: argparse.Namespace) -> int:
    check_timing(1, options.rounds)
    torch.set_num_threads(1)
    target = Target.load(options.model, options.dtype, "cpu", exact="near-ties")
    rows = []
    for context in options.contexts:
        cache = filled_cache(target, 1, context + max(options.sizes))
        cache.lengths[0] = context
        for size in options.sizes:
            times = _time(target, cache, binary_tree(target, size), options.rounds)
            masked, split = times["masked"], times["split"]
            ratios = [one / other for one, other in zip(split, masked, strict=True)]
            rows.append([str(context), str(size), median(masked), median(split) / median(masked), median(ratios)])
    print(format_table(["context", "rows", "masked, ms", "split / masked", "median of pairs"], rows), flush=True)
    if options.json:
        write_json(options.json, rows)
    return 0


def _time(target: Target, cache: KVCache, layout: TreeLayout, rounds: int) -> dict[str, list[float]]:
    """Return milliseconds of each variant and round, after a warm-up round."""
    times: dict[str, list[float]] = {way: [] for way in LEAST_PAIRS}
    for number in range(rounds + 1):
        for way, tree_attention.LEAST_PAIRS in LEAST_PAIRS.items():
            begin = cpu_clock()
            target.forward(cache, [0], [layout], [len(layout)])
            if number:
                times[way].append(1000 * (cpu_clock() - begin))
    return times


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("split_attention", __doc__, *EXAMPLES)
    parser.add_argument("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    parser.add_argument("--dtype", choices=("auto", *DTYPES), default="auto", help="auto: as stored")
    parser.add_argument("--contexts", type=int, nargs="+", default=(4096, 8000), help="cached tokens")
    parser.add_argument("--sizes", type=int, nargs="+", default=(8, 16, 64), help="rows of the tree, 2 to 64")
    parser.add_argument("--rounds", type=int, default=11, help="rounds of each variant, after one warm-up round")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
