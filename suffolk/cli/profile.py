"""Measure and store what a model's passes cost on this device, or what it costs to serve a datastore.

With --model, the command times passes with contexts of each length: 1 to 64 rows (tokens) a
request, 1 to SLOTS requests, up to 256 rows in all. Every command that decodes (generate, worker,
hierarchy plan --measure, replay --costs stored, bench decode ...) uses the costs stored for its
model, device, dtype and number of threads. It then plans better, and starts without measuring.

With --datastore, the command measures searches, calls of a draft service that it starts, and disk
reads, in less than a minute. 'suffolk capacity --profile FILE' plans nodes from these costs. Disk
reads are counted right only if no other process uses the datastore.

Run it while the machine is idle.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from suffolk.build_index.progress import part_progress
from suffolk.cli.model import MODEL, DeviceOptions, load_target
from suffolk.cli.output_file import require_folder
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import MAX_NODES
from suffolk.datastore.settings import Count, Within, option
from suffolk.serving.decoding.engine.costs.cost_model import SIZES, CostModel, Sample, grid
from suffolk.serving.decoding.engine.costs.cost_store import CostKey, costs_path, save_costs
from suffolk.serving.decoding.engine.model.model_folder import find_folder

CONTEXTS = [128, 1024]
EXAMPLES = """
suffolk profile --model MODEL_FOLDER
suffolk profile --model MODEL_FOLDER --dtype bfloat16 --device cuda --slots 16 --contexts 128,1024,8192
suffolk profile --model MODEL_FOLDER --threads 8 --output costs.json --json
suffolk profile --model SMALL_MODEL_FOLDER --as-draft-model
suffolk profile --datastore STORE --output costs.json"""


@dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    GROUP = ""  # first in the help
    model: str | None = option(None, MODEL)
    datastore: Path | None = option(
        None, "folder of a datastore, in place of a model", metavar="STORE", excludes=("model",)
    )
    max_nodes: Annotated[int, Within(1, MAX_NODES)] = option(64, "nodes of a draft, with --datastore")
    slots: int = option(8, "the most requests at once")
    contexts: str | None = option(
        None,
        "numbers of cached tokens per request (default: 128,1024, or fewer if the model takes fewer)",
        metavar="LIST",
        blank=True,
    )
    rounds: Count = option(5, "passes for each number of rows, requests and cached tokens")
    output: Path | None = option(
        None, "file to write (default: in the user's cache; with --datastore suffolk-profile.json)", written=True
    )
    as_draft_model: bool = option(False, "measure the model as a draft model, which has int8 weights on a CPU")
    json: bool = option(False, "print the result as JSON")


def run(options: Options) -> None:
    if options.datastore is not None:
        _profile_datastore(options, options.datastore)
        return
    if options.model is None:
        raise InvalidArgument("profile needs --model MODEL or --datastore STORE; give one of them")
    contexts = CONTEXTS if options.contexts is None else _numbers(options.contexts)
    require_folder("--output", options.output)
    largest = grid(contexts, options.slots, None)
    find_folder(options.model)

    from suffolk.serving.decoding.engine.costs.cost_measurement import time_points
    from suffolk.serving.decoding.engine.model.int8_linear import compress
    from suffolk.serving.decoding.engine.model.same_bits import kernel_lines, kernels

    loading = replace(options, exact="near-ties") if options.as_draft_model else options  # as draft models are loaded
    target = load_target(options.model, loading, max(batch * (size + context) for size, batch, context in largest))
    if options.as_draft_model:
        compress(target.model)
    key = CostKey.of(target)
    if options.contexts is None and target.context_length is not None:
        contexts = sorted({max(1, min(context, target.context_length - SIZES[-1])) for context in contexts})
    points = grid(contexts, options.slots, target.context_length)
    with part_progress(options.rounds * len(points), "passes") as report:
        samples = time_points(target, points, options.rounds, report=report)
    costs = CostModel.fit(samples)
    path = options.output or costs_path(key)
    result = passes_result(costs, samples)
    same = kernels(target)
    shown = (
        json.dumps({"file": str(path), "slots": options.slots, "same_bits": target.same_bits, "kernels": same} | result)
        if options.json
        else "\n".join([*passes_lines(result), *kernel_lines(same)])
    )
    print(shown)  # print first, so that the result is not lost if the file cannot be written
    save_costs(costs, key, path)
    if not options.json:
        print(f"wrote {path}")


def _profile_datastore(options: Options, store: Path) -> None:
    from suffolk.benchmarks.capacity.profile import measure_service_costs
    from suffolk.capacity.service_costs import costs_lines, write_costs

    path = options.output or Path("suffolk-profile.json")
    require_folder("--output", path)
    costs = measure_service_costs(store, options.max_nodes)
    print(json.dumps({"file": str(path)} | asdict(costs)) if options.json else "\n".join(costs_lines(costs)))
    write_costs(costs, path)
    if not options.json:
        print(f"wrote {path}")


def _numbers(text: str) -> list[int]:
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError as error:
        raise InvalidArgument(f"--contexts is {text!r}; it must be numbers separated by commas") from error


NODES = (4, 8, 16, 32, 64)
"""Tree sizes in the break-even table."""


def passes_result(costs: CostModel, samples: list[Sample]) -> dict[str, Any]:
    """Return measured and modelled passes, and the accepted tokens at which a draft tree breaks even, by requests and context."""
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


def passes_lines(result: dict[str, Any]) -> list[str]:
    """Format the result as text."""
    first = min(result["passes"], key=lambda each: (each["rows_per_request"], each["requests"], each["context"]))
    sizes = sorted({each["rows_per_request"] for each in result["passes"]})
    table: dict[tuple[int, int], dict[int, float]] = {}
    for each in result["passes"]:
        table.setdefault((each["requests"], each["context"]), {})[each["rows_per_request"]] = each["seconds"]
    lines = [
        "milliseconds of a pass (relative to one row of one request), by rows per request",
        f"{'requests':>8} {'context':>8} " + "".join(f"{size:>16}" for size in sizes),
    ]
    for (requests, context), row in sorted(table.items()):
        cells = [f"{row[size] * 1e3:.1f} ({row[size] / first['seconds']:.2f})" if size in row else "" for size in sizes]
        lines.append(f"{requests:>8} {context:>8} " + "".join(f"{cell:>16}" for cell in cells))
    lines += [
        "",
        "break-even: accepted tokens per request at which a tree repays its time, by number of nodes",
        f"{'requests':>8} {'context':>8} " + "".join(f"{nodes:>8}" for nodes in NODES),
    ]
    for each in result["break_even"]:
        cells = [f"{each['accepted'][str(nodes)]:>8.2f}" for nodes in NODES]
        lines.append(f"{each['requests']:>8} {each['context']:>8} " + "".join(cells))
    error = result["error"]
    return [
        *lines,
        "",
        f"the cost model differs from these times by {error['root_mean_square']:.1%} (root mean square), "
        f"{error['largest']:.1%} at most",
    ]
