"""Measures the time of packed and compiled forward passes in turn, the compile time, and the number of graphs.

Torch caches compiled code in TORCHINDUCTOR_CACHE_DIR. The first run with an empty cache compiles everything; later runs
show the time of a warm start.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch._dynamo.utils import counters

from research.command import check_timing, command_parser, cpu_clock, run_command
from suffolk.benchmarks.report import describe_machine
from suffolk.datastore.files import write_json
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.passes import Passes
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.target_loader import DTYPES
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain

EXAMPLES = (
    "--model MODEL --threads 1",
    "--model MODEL --dtype bfloat16 --requests 1 4 --json results.json",
)
WAYS = ("packed", "compiled")


def measure_passes(target: Target, options: argparse.Namespace) -> dict[str, Any]:
    """Return compile seconds, the number of graphs for all points, and milliseconds of both variants at each point."""
    requests = max(options.requests)
    cache = target.new_cache(requests, max(options.contexts) + max(options.rows))
    before = counters["stats"]["unique_graphs"]
    begin = time.perf_counter()
    ways = {way: Passes(target, cache, way) for way in WAYS}
    seconds = time.perf_counter() - begin
    points = []
    for context in options.contexts:
        _fill(target, cache, context)
        for count in options.requests:
            for rows in options.rows:
                if rows % count == 0:
                    times = _time(ways, _layouts(target, rows, count), options.rounds)
                    points.append({"context": context, "requests": count, "rows": rows} | times)
    graphs = counters["stats"]["unique_graphs"] - before
    found = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"] > 0
    return {"start_seconds": seconds, "found_on_disk": found, "graphs": graphs, "points": points}


def _fill(target: Target, cache: KVCache, context: int) -> None:
    for slot in range(cache.slots):
        cache.clear(slot)
        target.prefill(_tokens(target, context), cache, slot)


def _layouts(target: Target, rows: int, requests: int) -> list[TreeLayout]:
    return [chain(_tokens(target, rows // requests)) for _ in range(requests)]


def _tokens(target: Target, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return (np.arange(count) * 7919 + 17) % target.vocab_size


def _time(ways: dict[str, Passes], layouts: list[TreeLayout], rounds: int) -> dict[str, dict[str, float]]:
    slots, wanted = range(len(layouts)), [len(layout) for layout in layouts]
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):  # the first round warms up
        for way, passes in ways.items():
            begin = cpu_clock()
            passes.forward(slots, layouts, wanted)
            if turn > 0:
                times[way].append(1000 * (cpu_clock() - begin))
    return {way: {"median": median(seen), "least": min(seen)} for way, seen in times.items()}


def _show(title: str, found: dict[str, Any]) -> None:
    start = "found on disk" if found["found_on_disk"] else "compiled anew"
    print(f"\n{title}: {found['start_seconds']:.1f} s to start ({start}); {found['graphs']} graph for all points")
    rows = [
        [
            *(str(point[key]) for key in ("context", "requests", "rows")),
            *(f"{point[way]['median']:.1f} ({point[way]['least']:.1f})" for way in WAYS),
            *(point["compiled"][kind] / point["packed"][kind] for kind in ("median", "least")),
        ]
        for point in found["points"]
    ]
    titles = [
        "context",
        "requests",
        "rows",
        *(f"{way}, ms (least)" for way in WAYS),
        "compiled / packed",
        "of the least",
    ]
    print(format_table(titles, rows), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(options: argparse.Namespace) -> int:
    check_timing(options.threads, options.rounds)
    torch.set_num_threads(options.threads)
    results: dict[str, Any] = {"machine": describe_machine(), "threads": options.threads}
    for dtype in options.dtype or ("float32", "bfloat16"):
        title = f"{Path(options.model).name} {dtype}"
        results[title] = measure_passes(Target.load(options.model, dtype, "cpu"), options)
        _show(title, results[title])
    if options.json:
        write_json(options.json, results)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("compiled_passes", __doc__, *EXAMPLES)
    parser.add_argument("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    parser.add_argument(
        "--dtype", choices=DTYPES, action="append", help="may be repeated; float32 and bfloat16 if not given"
    )
    parser.add_argument("--contexts", type=int, nargs="+", default=(100, 600), help="cached tokens of each request")
    parser.add_argument("--requests", type=int, nargs="+", default=(1,), help="requests in a pass")
    parser.add_argument("--rows", type=int, nargs="+", default=(1, 4, 8, 16, 32), help="rows of all of them together")
    parser.add_argument("--rounds", type=int, default=12, help="rounds of each variant, after one warm-up round")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="CPU threads (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write all results to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
