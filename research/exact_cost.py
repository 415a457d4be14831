"""Times passes with equal bits and with near-ties in turn, in CPU seconds of one thread.

A pass with equal bits uses the kernels whose results do not depend on the pass; one with near-ties uses the faster kernels.
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
from research.some_passes import binary_tree, filled_cache
from suffolk.datastore.files import write_json
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.model.same_bits import kernel_lines, kernels
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.target_loader import DTYPES
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain

EXAMPLES = ("--model MODEL --dtype bfloat16",)
CAPACITY = 2600
SLOTS = 8
Pass = tuple[int, list[TreeLayout], bool]
"""Cached tokens, the rows of each request, and whether the logits of all rows are needed."""


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(options: argparse.Namespace) -> int:
    check_timing(1, options.rounds)
    torch.set_num_threads(1)
    targets = {exact: Target.load(options.model, options.dtype, "cpu", exact=exact) for exact in ("near-ties", "bits")}
    print("\n".join(kernel_lines(kernels(targets["bits"]))), flush=True)
    rows = []
    for name, each in _passes(targets["bits"]).items():
        times = _time(targets, each, options.rounds)
        near, bits = times["near-ties"], times["bits"]
        ratios = [one / other for one, other in zip(bits, near, strict=True)]
        rows.append([name, median(near), min(bits) / min(near), median(ratios)])
    print(format_table(["pass", "near-ties, ms", "least / least", "median of pairs"], rows), flush=True)
    if options.json:
        write_json(options.json, rows)
    return 0


def _passes(target: Target) -> dict[str, Pass]:
    one, tree = chain(np.array([5])), binary_tree(target, 8)
    found: dict[str, Pass] = {}
    for context in (256, 2000):
        found[f"1 row after {context}"] = context, [one], True
        found[f"a tree of 8 after {context}"] = context, [tree], True
    found["a tree of 24 after 256"] = 256, [binary_tree(target, 24)], True
    found["a tree of 48 after 1000"] = 1000, [binary_tree(target, 48)], True
    found["8 requests of 1 row after 500"] = 500, [one] * SLOTS, True
    found["8 trees of 8 after 500"] = 500, [tree] * SLOTS, True
    for size, context in ((16, 300), (128, 0), (512, 0), (512, 1500)):
        found[f"{size} tokens of a prompt after {context}"] = context, [chain(np.arange(size))], False
    return found


def _time(targets: dict[str, Target], each: Pass, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each round, after a warm-up round."""
    context, layouts, all_rows = each
    wanted = [len(layout) if all_rows else 1 for layout in layouts]
    times: dict[str, list[float]] = {exact: [] for exact in targets}
    caches = {exact: filled_cache(target, len(layouts), CAPACITY) for exact, target in targets.items()}
    for number in range(rounds + 1):
        for exact in sorted(targets, reverse=bool(number % 2)):
            cache = caches[exact]
            cache.lengths[:] = context
            begin = cpu_clock()
            targets[exact].forward(cache, list(range(len(layouts))), layouts, wanted)
            if number:
                times[exact].append(1000 * (cpu_clock() - begin))
    return times


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("exact_cost", __doc__, *EXAMPLES)
    parser.add_argument("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    parser.add_argument("--dtype", choices=("auto", *DTYPES), default="auto", help="auto: as stored")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each, after one warm-up round")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
