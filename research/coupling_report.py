"""Formats the table, summary and plot of the coupling measurement."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import format_table

PACKAGES = ("numpy", "torch", "transformers", "matplotlib")
NOTES = (
    "acceptance: probability that one of a node's k children is the token that the target samples there; mean over "
    "contexts. top-k: children are the drafter's k likeliest tokens. coupled: children are the k best tokens by the "
    "drafter's log probability plus the target's seeded noise",
    "by: coupled minus top-k, with the half-width of its 95 % confidence interval over contexts and noise; 1 - TV: "
    "acceptance of speculative sampling with a single sampled token",
    "both models use the same temperature; the result is for one node and does not include how often later nodes are "
    "reached",
)


def coupling_lines(results: dict[str, Any]) -> list[str]:
    """Format the table, the summary, and the notes."""
    sizes = results["children"]
    headers = ["drafter, temperature", "1 - TV"]
    for size in sizes:
        headers += [f"top-{size}", f"coupled {size}", f"by, k={size}"]
    rows = []
    for drafter, found in results["drafters"].items():
        for temperature, each in found.items():
            row: list[object] = [f"{drafter}, T={temperature}", f"{each['one_minus_tv']:.3f}"]
            for size in sizes:
                at = each["children"][str(size)]
                gap = f"{at['difference']:+.3f}±{at['half_width_95']:.3f}"
                row += [f"{at['top']:.3f}", f"{at['coupled']:.3f}", gap]
            rows.append(row)
    return [format_table(headers, rows), *statement(results), *(f"note: {note}" for note in NOTES)]


def statement(results: dict[str, Any]) -> list[str]:
    """State whether coupling gains at every temperature and number of children, and where it does not."""
    cells = [
        (f"{drafter}, T={temperature}, k={size}", at["difference"], at["half_width_95"])
        for drafter, found in results["drafters"].items()
        for temperature, each in found.items()
        for size, at in each["children"].items()
    ]
    worse = [f"{name} ({gap:+.3f}±{width:.3f})" for name, gap, width in cells if gap + width < 0]
    better = sum(gap - width > 0 for _, gap, width in cells)
    lines = [
        f"coupled compared to top-k in {len(cells)} cells: more in {better}, no difference seen in "
        f"{len(cells) - better - len(worse)}, less in {len(worse)}"
    ]
    return lines + ([f"less: {'; '.join(worse)}"] if worse else [])


def coupling_panels(results: dict[str, Any]) -> list[Panel]:
    """Plot one chart per drafter: both rules at each temperature and number of children."""
    panels = []
    for drafter, found in results["drafters"].items():
        labels, series = [], dict[str, list[float | None]](top=[], coupled=[])
        for temperature, each in found.items():
            for size, at in each["children"].items():
                labels.append(f"T={temperature}\nk={size}" if size == "1" else f"\nk={size}")
                series["top"].append(at["top"])
                series["coupled"].append(at["coupled"])
        named = {"top-k of the drafter": series["top"], "top-k with the target's noise": series["coupled"]}
        panels.append(Panel(drafter, "acceptance at a node", labels, named))
    return panels
