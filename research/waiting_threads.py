"""Times passes of a model while other programs compute, with waiting threads that spin and that sleep in turn."""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import numpy as np
import torch

from research.command import check_timing, command_parser, run_command
from research.some_passes import filled_cache
from suffolk.datastore.checks import check_range
from suffolk.datastore.files import write_json
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.costs.cost_model import MAX_ROWS
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.target_loader import DTYPES
from suffolk.serving.decoding.engine.model.thread_waits import ThreadWaits
from suffolk.serving.decoding.engine.model.tree_layout import chain

EXAMPLES = ("--model MODEL --busy 0 1 2",)
_CONTEXT = 200
_TURN = 5
"""Passes of each number of rows between two changes."""
_PROGRAM = "while True: pass"


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(options: argparse.Namespace) -> int:
    check_timing(torch.get_num_threads(), options.rounds)
    for busy in options.busy:
        check_range("--busy", busy, 0, 1024)
    for rows in options.rows:
        check_range("--rows", rows, 1, MAX_ROWS)
    target = Target.load(options.model, options.dtype, "cpu", exact="near-ties")
    cache = filled_cache(target, 1, _CONTEXT + max(options.rows))
    cache.lengths[0] = _CONTEXT
    found = []
    for busy in options.busy:
        with _programs(busy):
            times = _time(target, cache, options.rows, options.rounds)
        for rows in options.rows:
            spin, sleep = times["spin", rows], times["sleep", rows]
            found.append([str(busy), str(rows), median(spin), median(sleep), max(spin), max(sleep)])
    heads = ["programs", "rows", "spin, ms", "sleep, ms", "slowest with spin, ms", "slowest with sleep, ms"]
    print(format_table(heads, found), flush=True)
    if options.json:
        write_json(options.json, found)
    return 0


def _time(target: Target, cache: KVCache, sizes: Sequence[int], rounds: int) -> dict[tuple[str, int], list[float]]:
    """Milliseconds of passes by (way, rows)."""
    waits = ThreadWaits()
    times: dict[tuple[str, int], list[float]] = {(way, rows): [] for way in ("spin", "sleep") for rows in sizes}
    for _ in range(rounds):
        for way, change in (("spin", waits.spin), ("sleep", waits.sleep)):
            change()
            for rows in (rows for rows in sizes for _ in range(_TURN)):
                begin = time.perf_counter()
                target.forward(cache, [0], [chain(np.zeros(rows, np.int64))], [rows])
                times[way, rows].append(1000 * (time.perf_counter() - begin))
    waits.spin()
    return times


@contextmanager
def _programs(count: int) -> Iterator[None]:
    """Programs that keep one CPU each busy."""
    running = [subprocess.Popen([sys.executable, "-c", _PROGRAM]) for _ in range(count)]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("waiting_threads", __doc__, *EXAMPLES)
    parser.add_argument("--model", required=True, help="model folder in the Hugging Face layout, or hub name")
    parser.add_argument("--dtype", choices=("auto", *DTYPES), default="auto", help="auto: as stored")
    parser.add_argument("--busy", type=int, nargs="+", default=(0, 1, 2), help="numbers of programs that compute")
    parser.add_argument("--rows", type=int, nargs="+", default=(1, 2, 8, 16), help="rows of the passes")
    parser.add_argument("--rounds", type=int, default=4, help="rounds, each with both ways in turn")
    parser.add_argument("--json", type=Path, help="write all results to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
