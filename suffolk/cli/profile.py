"""Measure what passes of a model cost on this device, and keep it: decoding then needs no quick look, and plans better.

Times passes of 1 to 64 rows a request, for 1 to SLOTS requests, up to 256 rows in all, behind contexts of each length. All that
decodes (suffolk generate, worker, plan --measure, replay --costs stored, bench decode ...) takes up what is stored for its model,
device, dtype and number of threads. Run it while the machine does nothing else.

examples:
  suffolk profile --model MODEL_FOLDER
  suffolk profile --model MODEL_FOLDER --dtype bfloat16 --device cuda --slots 16 --contexts 128,1024,8192
  suffolk profile --model MODEL_FOLDER --threads 8 --output costs.json --json
  suffolk profile --model SMALL_MODEL_FOLDER --as-draft-model
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from suffolk.cli.filled import filled, filled_path
from suffolk.cli.model_options import add_device_options, load_target, require_models, require_threads
from suffolk.cli.output_file import require_folder
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.engine.costs.cost_grid import SIZES, grid

if TYPE_CHECKING:
    from suffolk.serving.engine.costs.cost_model import CostModel, Sample

CONTEXTS = [128, 1024]
NODES = (4, 8, 16, 32, 64)
PLAIN_SECONDS = 30.0
"""Seconds between two lines of progress where there is no terminal."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``suffolk profile``."""
    parser.add_argument(
        "--model", type=filled, required=True, help="model folder in the Hugging Face layout, or hub name"
    )
    parser.add_argument(
        "--slots", type=int, default=8, metavar="N", help="most requests at once (default: %(default)s)"
    )
    parser.add_argument(
        "--contexts",
        metavar="LIST",
        help="cached tokens per request (default: 128,1024, or what the model has room for)",
    )
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="passes at each point (default: %(default)s)"
    )
    parser.add_argument(
        "--output", type=filled_path, metavar="FILE", help="where to keep it (default: in the user's cache)"
    )
    parser.add_argument(
        "--as-draft-model", action="store_true", help="measure it as it drafts: on a CPU with weights of one byte"
    )
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    add_device_options(parser.add_argument_group("device"))


def run(args: argparse.Namespace) -> int:
    """Measure, store, print; returns the exit code."""
    contexts = CONTEXTS if args.contexts is None else _numbers(args.contexts)
    if args.rounds < 1:
        raise InvalidArgument(f"--rounds is {args.rounds}; it must be 1 or more")
    require_folder("--output", args.output)
    require_threads(args)
    largest = grid(contexts, args.slots, None)
    require_models(args)

    from suffolk.serving.engine.costs.cost_measurement import time_points
    from suffolk.serving.engine.costs.cost_model import CostModel
    from suffolk.serving.engine.costs.cost_store import CostKey, CostStore, save_costs
    from suffolk.serving.engine.model.int8_linear import compress

    target = load_target(args, max(batch * (size + context) for size, batch, context in largest))
    if args.as_draft_model:
        compress(target.model)
    key = CostKey.of(target)
    if args.contexts is None and target.context_length is not None:
        contexts = sorted({max(1, min(context, target.context_length - SIZES[-1])) for context in contexts})
    points = grid(contexts, args.slots, target.context_length)
    with _progress(args.rounds * len(points)) as report:
        samples = time_points(target, points, args.rounds, report=report)
    costs = CostModel.fit(samples)
    path = args.output or CostStore().path(key)
    result = _result(costs, samples)
    shown = json.dumps({"file": str(path), "slots": args.slots} | result) if args.json else "\n".join(_lines(result))
    print(shown)  # first: it is not lost if the file cannot be written
    save_costs(costs, key, path)
    if not args.json:
        print(f"wrote {path}")
    return 0


def _numbers(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise InvalidArgument(f"--contexts is {text!r}; it must be numbers separated by commas") from error


def _result(costs: CostModel, samples: list[Sample]) -> dict[str, Any]:
    """The measured passes beside the model's, and how many accepted tokens trees must bring to pay, by requests and context."""
    believed = [costs.time(each.rows, each.requests, each.context) for each in samples]
    errors = [time / each.seconds - 1 for time, each in zip(believed, samples, strict=True)]
    batches = sorted({(each.requests, each.context) for each in samples})
    return {
        "passes": [
            {
                "requests": each.requests, "context": each.context, "rows_per_request": each.rows // each.requests,
                "seconds": each.seconds, "model_seconds": time,
            }
            for each, time in zip(samples, believed, strict=True)
        ],
        "error": {
            "root_mean_square": (sum(error**2 for error in errors) / len(errors)) ** 0.5,
            "largest": max(map(abs, errors)),
        },
        "break_even": [
            {"requests": requests, "context": context, "accepted": {
                str(nodes): costs.time(requests * (1 + nodes), requests, context)
                / costs.time(requests, requests, context) - 1 for nodes in NODES
            }}
            for requests, context in batches
        ],
    }  # fmt: skip


def _lines(result: dict[str, Any]) -> list[str]:
    """The result for people."""
    first = min(result["passes"], key=lambda each: (each["rows_per_request"], each["requests"], each["context"]))
    sizes = sorted({each["rows_per_request"] for each in result["passes"]})
    table: dict[tuple[int, int], dict[int, float]] = {}
    for each in result["passes"]:
        table.setdefault((each["requests"], each["context"]), {})[each["rows_per_request"]] = each["seconds"]
    lines = [
        "milliseconds of a pass (times one row of one request), by rows a request",
        f"{'requests':>8} {'context':>8} " + "".join(f"{size:>16}" for size in sizes),
    ]
    for (requests, context), row in sorted(table.items()):
        cells = [f"{row[size] * 1e3:.1f} ({row[size] / first['seconds']:.2f})" if size in row else "" for size in sizes]
        lines.append(f"{requests:>8} {context:>8} " + "".join(f"{cell:>16}" for cell in cells))
    lines += [
        "",
        "accepted tokens a request that trees of so many nodes must bring to pay",
        f"{'requests':>8} {'context':>8} " + "".join(f"{nodes:>8}" for nodes in NODES),
    ]
    for each in result["break_even"]:
        cells = [f"{each['accepted'][str(nodes)]:>8.2f}" for nodes in NODES]
        lines.append(f"{each['requests']:>8} {each['context']:>8} " + "".join(cells))
    error = result["error"]
    return [
        *lines,
        "",
        f"the model differs from these times by {error['root_mean_square']:.1%} (root mean square), {error['largest']:.1%} at most",
    ]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Shows how many passes of ``total`` are done: a bar on a terminal, a line now and then anywhere else."""
    if not sys.stderr.isatty():
        yield _plain_progress(total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    rate = TextColumn("{task.fields[rate]:.1f} passes/s")
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=total, rate=0.0)
        begin = time.monotonic()
        yield lambda done: progress.update(task, completed=done, rate=done / max(time.monotonic() - begin, 1e-9))


def _plain_progress(total: int) -> Callable[[int], None]:
    begin = last = time.monotonic()

    def report(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PLAIN_SECONDS:
            last = now
            rate = done / (now - begin)
            left = (total - done) / rate
            print(
                f"{done} of {total} passes, {rate:.1f} passes/s, about {left:.0f} s left", file=sys.stderr, flush=True
            )

    return report
