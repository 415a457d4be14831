"""Time of one layer's attention of a tree: masked in one, and split into context and tree, in turn."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from research.command import check_timing, command_parser, run_command
from suffolk.benchmarks.json_file import write_json
from suffolk.benchmarks.machine import describe_machine
from suffolk.benchmarks.table import format_table
from suffolk.datastore.errors import Unsupported
from suffolk.serving.engine.model.kv_cache import LayerShape
from suffolk.serving.engine.model.split_attention import attention_ways, measure_split, time_in_turn
from suffolk.serving.engine.model.target_loader import DTYPES

EXAMPLES = (
    "--threads 1",
    "--device cuda --dtype bfloat16 --json results.json",
)
HEADS = {"SmolLM2-135M": (9, 3, 64), "Qwen2.5-0.5B": (14, 2, 64), "Qwen2.5-7B": (28, 4, 128)}
"""Query heads, key heads, width."""


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(options: argparse.Namespace) -> int:
    check_timing(options.threads, options.rounds)
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise Unsupported(f"--device {options.device}: this machine has no CUDA device; use cpu")
    torch.set_num_threads(options.threads)
    results: dict[str, Any] = {"machine": describe_machine(), "threads": options.threads, "layers": []}
    for dtype in options.dtype or ("float32", "bfloat16"):
        for name in options.model or HEADS:
            found = _measure(name, dtype, options)
            results["layers"] += found
            _show(name, dtype, found, options)
    if options.json:
        write_json(options.json, results)
    return 0


def _measure(name: str, dtype: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Milliseconds of both ways for each context, size and number of requests."""
    heads, key_heads, width = HEADS[name]
    shape, kind, device = LayerShape(key_heads, width, width, None), DTYPES[dtype], torch.device(options.device)
    found = []
    for requests in options.requests:
        for context in options.contexts:
            for size in options.sizes:
                # each request its own keys, as in a pass: only then they come from memory
                calls = [attention_ways(context, size, heads, shape, kind, device) for _ in range(requests)]
                ways = {way: _all(calls, way) for way in calls[0]}
                times = time_in_turn(ways, options.rounds, device)
                point: dict[str, Any] = {"model": name, "dtype": dtype, "requests": requests}
                point |= {"context": context, "size": size}
                for way, seconds in times.items():
                    point[way] = {"median": 1000 * median(seconds), "least": 1000 * min(seconds)}
                found.append(point)
    return found


def _all(calls: list[dict[str, Any]], way: str) -> Any:
    return lambda: [call[way]() for call in calls][-1]


def _show(name: str, dtype: str, found: list[dict[str, Any]], options: argparse.Namespace) -> None:
    heads, key_heads, width = HEADS[name]
    device = torch.device(options.device)
    chosen = measure_split(heads, LayerShape(key_heads, width, width, None), DTYPES[dtype], device)
    rows = [
        [
            *(str(point[key]) for key in ("requests", "context", "size")),
            point["masked"]["median"],
            *(point["split"][kind] / point["masked"][kind] for kind in ("median", "least")),
        ]
        for point in found
    ]
    titles = ["requests", "context", "rows", "masked, ms", "split / masked", "of the least"]
    print(f"\n{name} {dtype}: a target would split from {chosen} cached tokens on")
    print(format_table(titles, rows), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("tree_attention", __doc__, *EXAMPLES)
    parser.add_argument("--model", help="only the heads of this model", choices=HEADS, action="append")
    parser.add_argument(
        "--dtype", choices=DTYPES, action="append", help="may be repeated; float32 and bfloat16 if not given"
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where it is timed (default: %(default)s)"
    )
    parser.add_argument("--contexts", type=int, nargs="+", default=(256, 1024, 4096), help="cached tokens")
    parser.add_argument("--sizes", type=int, nargs="+", default=(8, 16, 64), help="rows of the tree, up to 64")
    parser.add_argument("--requests", type=int, nargs="+", default=(1, 8), help="requests in a pass, one call for each")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each way; one more warms up")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="CPU threads (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write all results to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
