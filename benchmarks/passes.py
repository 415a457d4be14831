"""Formats the measured passes of a model and its cost model, as JSON and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suffolk.serving.decoding.engine.costs.cost_model import CostModel, Sample

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
