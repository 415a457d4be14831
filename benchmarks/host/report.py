"""Table and plot of the host measurement."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.host.step_parts import PARTS
from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import Table

PACKAGES = ("numpy", "torch", "transformers", "matplotlib")
HEADERS = ("requests, drafter", "steps", "ms", "p90", "tokens a step", *PARTS)
NOTES = (
    "ms: processor time of a step beside the model's pass, median and p90 of steps in which all requests decode; "
    "tokens a step: of one request",
    "parts: medians of a second run that watches them, which takes longer. scheduling: choose and lay out rows; loading: "
    "write the rows of a captured pass; drafting: call the drafters; learning: let them learn; planning: size the trees, and "
    "book costs and gains; verification: sample and accept; bookkeeping: counts, results, and the cache; streaming: text",
    "the texts are words of Python's standard library; half of its modules are the datastore. A pass is not computed. The "
    "planner gets its time from a cost table, so it drafts as on that device",
)


def host_parts(results: dict[str, Any]) -> list[str | Table]:
    """The table."""
    rows = [
        [
            _name(case),
            case["steps"],
            case["ms"],
            case["ms_p90"],
            case["tokens_per_step"],
            *(case["parts_ms"][part] for part in PARTS),
        ]
        for case in results["cases"]
    ]
    return [Table(HEADERS, rows)]


def host_panels(results: dict[str, Any]) -> list[Panel]:
    """Plot the time of a step, whole and by part."""
    cases = results["cases"]
    names = [_name(case) for case in cases]
    whole: dict[str, list[float | None]] = {"step": [case["ms"] for case in cases]}
    parts: dict[str, list[float | None]] = {part: [case["parts_ms"][part] for case in cases] for part in PARTS}
    return [
        Panel("host time of a step", "milliseconds", names, whole, logarithmic=True),
        Panel("its parts", "milliseconds", names, parts, logarithmic=True),
    ]


def _name(case: dict[str, Any]) -> str:
    return f"{case['requests']}, {case['drafter']}"
