"""Times linear layers over few rows, and whole passes: with torch, the kernel, and the kernel with int8 weights."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

from research.command import check_timing, command_parser, cpu_clock, run_command
from suffolk.benchmarks.report import describe_machine
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.files import write_json
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.engine.model.int8_linear import compress, round_weights
from suffolk.serving.decoding.engine.model.skinny_gemm import MOST_ROWS, SkinnyLinear, accelerate, skinny_gemm
from suffolk.serving.decoding.engine.model.target_loader import DTYPES, read_vocab_size

EXAMPLES = (
    "--threads 1",
    "--model MODEL --dtype bfloat16 --json results.json",
)
ROWS = (1, 2, 4, 8, 16, 32, 64)
SHAPES = {
    "SmolLM2-135M": ((576, 576), (1536, 576), (576, 1536), (49152, 576)),
    "Qwen2.5-0.5B": ((896, 896), (4864, 896), (896, 4864), (151936, 896)),
    "Qwen2.5-1.5B": ((1536, 1536), (256, 1536), (8960, 1536), (1536, 8960), (151936, 1536)),
}
_STREAMED_BYTES = 1 << 26
"""Calls cycle through at least this many bytes of weights, so that no call finds its weights in the caches."""

Times = dict[str, dict[str, float]]


def measure_layer(
    outputs: int, inputs: int, dtype: torch.dtype, rows: tuple[int, ...], rounds: int
) -> dict[int, Times]:
    """Return least and median milliseconds by number of rows: torch, the kernel, and the kernel with int8 weights."""
    copies = max(2, _STREAMED_BYTES // (outputs * inputs))
    weights = [torch.randn(outputs, inputs).to(dtype) for _ in range(copies)]
    rounded = [round_weights(weight) for weight in weights]
    turns = itertools.count()
    found = {}
    for count in rows:
        given = torch.randn(count, inputs).to(dtype)

        def by_torch(given: torch.Tensor = given) -> object:
            return F.linear(given, weights[next(turns) % copies])

        def by_kernel(given: torch.Tensor = given) -> object:
            return skinny_gemm(given, weights[next(turns) % copies])

        def by_bytes(given: torch.Tensor = given) -> object:
            weight, scales = rounded[next(turns) % copies]
            return skinny_gemm(given, weight, None, scales)

        found[count] = _in_turn({"torch": by_torch, "kernel": by_kernel, "bytes": by_bytes}, rounds)
    return found


def measure_model(name: str, dtype: torch.dtype, rows: tuple[int, ...], rounds: int) -> dict[int, Times]:
    """Return milliseconds of a model's pass over each number of tokens.

    The linear layers use torch, the kernel, the choice of ``accelerate``, or int8 weights as in a draft model.
    """
    model: Any = AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
    model.eval()
    accelerate(model)
    layers = [layer for layer in model.modules() if isinstance(layer, SkinnyLinear)]
    chosen = [layer.kernel_rows for layer in layers]
    every, none = [frozenset(range(1, MOST_ROWS + 1))] * len(layers), [frozenset[int]()] * len(layers)

    def timed(kernel_rows: list[frozenset[int]], ids: torch.Tensor) -> Callable[[], object]:
        def call() -> object:
            for layer, used in zip(layers, kernel_rows, strict=True):
                layer.kernel_rows = used
            return model(ids, use_cache=False)

        return call

    found = {}
    for count in rows:
        ids = torch.arange(count)[None] + 100
        ways = {"torch": timed(none, ids), "kernel": timed(every, ids), "chosen": timed(chosen, ids)}
        found[count] = _in_turn(ways, rounds)
    compress(model)
    for count in rows:
        ids = torch.arange(count)[None] + 100
        found[count] |= _in_turn({"bytes": timed(chosen, ids)}, rounds)
    return found


@torch.inference_mode()
def _in_turn(ways: dict[str, Callable[[], object]], rounds: int) -> Times:
    times: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):  # the first round warms up
        for way, call in ways.items():
            begin = cpu_clock()
            call()
            if turn > 0:
                times[way].append((cpu_clock() - begin) * 1000)
    return {way: {"least": min(seen), "median": median(seen)} for way, seen in times.items()}


def _show(title: str, found: dict[int, Times], kind: str) -> None:
    ways = list(next(iter(found.values())))
    table = [[way, *(times[way][kind] for times in found.values())] for way in ways]
    print(f"\n{format_table([title, *map(str, found)], table)}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_command(_parser(), _run, arguments)


def _run(options: argparse.Namespace) -> int:
    check_timing(options.threads, options.rounds)
    if min(options.rows) < 1:
        raise InvalidArgument(f"--rows holds {min(options.rows)}; each must be 1 or more")
    torch.set_num_threads(options.threads)
    results: dict[str, Any] = {"machine": describe_machine(), "threads": options.threads, "milliseconds": {}}
    for dtype in options.dtype or ("float32", "bfloat16"):
        for title, measured in _measurements(options, dtype):
            found = measured()
            results["milliseconds"][title] = found
            _show(title, found, options.show)
    if options.json:
        write_json(options.json, results)
    return 0


def _measurements(options: argparse.Namespace, dtype: str) -> list[tuple[str, Callable[[], dict[int, Times]]]]:
    kind, rows = DTYPES[dtype], tuple(options.rows)
    if options.model:
        read_vocab_size(options.model)  # report a missing model before anything else
        return [
            (f"{Path(options.model).name} {dtype}", partial(measure_model, options.model, kind, rows, options.rounds))
        ]
    return [
        (f"{name} {outputs}x{inputs} {dtype}", partial(measure_layer, outputs, inputs, kind, rows, options.rounds))
        for name in options.shape or SHAPES
        for outputs, inputs in SHAPES[name]
    ]


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("skinny_gemm", __doc__, *EXAMPLES)
    parser.add_argument("--model", help="time a whole pass of this model instead of single layers")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        action="append",
        help="may be repeated; float32 and bfloat16 if not given",
    )
    parser.add_argument("--shape", help="only the layers of this model", choices=SHAPES, action="append")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="numbers of rows")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each variant, after one warm-up round")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="CPU threads (default: %(default)s)"
    )
    parser.add_argument(
        "--show",
        choices=("least", "median"),
        default="median",
        help="statistic in the tables; use the least on busy machines",
    )
    parser.add_argument("--json", type=Path, help="write all results to this file")
    return parser


if __name__ == "__main__":
    sys.exit(main())
