"""Times a forward pass over a draft tree with masked and split attention in turn, in CPU seconds of one thread.

The cache holds random numbers, so that long contexts need no prefill.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np
import torch

from research.command import check_timing, command_parser, cpu_clock, run_command
from suffolk.benchmarks.json_file import write_json
from suffolk.benchmarks.table import format_table
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.engine.model import split_attention
from suffolk.serving.engine.model.kv_cache import KVCache, SlabLayer
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.model.target_loader import DTYPES
from suffolk.serving.engine.model.tree_layout import TreeLayout, lay_out

EXAMPLES = ("--model MODEL --dtype bfloat16 --contexts 8000 16000",)
LEAST_PAIRS = {"masked": sys.maxsize, "split": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(options: argparse.Namespace) -> int:
    check_timing(1, options.rounds)
    torch.set_num_threads(1)
    target = Target.load(options.model, options.dtype, "cpu")
    rows = []
    for context in options.contexts:
        cache = target.new_cache(1, context + max(options.sizes))
        for layer in cache.layers.layers:
            if isinstance(layer, SlabLayer):
                layer.keys.normal_()
                layer.values.normal_()
        cache.lengths[0] = context
        for size in options.sizes:
            times = _time(target, cache, _tree(target, size), options.rounds)
            masked, split = times["masked"], times["split"]
            ratios = [one / other for one, other in zip(split, masked, strict=True)]
            rows.append([str(context), str(size), median(masked), median(split) / median(masked), median(ratios)])
    print(format_table(["context", "rows", "masked, ms", "split / masked", "median of pairs"], rows), flush=True)
    if options.json:
        write_json(options.json, rows)
    return 0


def _tree(target: Target, size: int) -> TreeLayout:
    """Return a tree of ``size`` rows: the context's last token, its three children, and a binary tree below these."""
    parents = np.array([-1 if node < 3 else (node - 3) // 2 for node in range(size - 1)], np.int32)
    tokens = ((np.arange(size) * 7919 + 17) % target.vocab_size).astype(np.int32)
    ones = np.ones(size - 1)
    return lay_out(int(tokens[0]), DraftTree(tokens[1:], parents, ones.astype(np.float32), ones.astype(np.uint32)))


def _time(target: Target, cache: KVCache, layout: TreeLayout, rounds: int) -> dict[str, list[float]]:
    """Return milliseconds of each variant and round, after a warm-up round."""
    times: dict[str, list[float]] = {way: [] for way in LEAST_PAIRS}
    for number in range(rounds + 1):
        for way, split_attention.LEAST_PAIRS in LEAST_PAIRS.items():
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
