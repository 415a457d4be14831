"""Tests the charts of the hybrid report."""

from __future__ import annotations

from typing import Any

from suffolk.benchmarks.hybrid.report import hybrid_panels


def part(nodes: int, temperature: float, m: float) -> dict[str, Any]:
    row = {"none": {"M": 1.0}, "datastore": {"M": m / 2}, "hybrid": {"M": m}}
    return {"nodes": nodes, "temperature": temperature, "table": {"chat": row, "coding, chat": row, "all": row}}


def test_m_is_plotted_by_nodes_and_by_set_for_the_largest_trees() -> None:
    parts = [part(64, 1.0, 3.0), part(8, 1.0, 2.0), part(64, 0.0, 4.0)]
    panels = hybrid_panels({"nodes": parts, "planned": [], "service": []})
    assert [panel.title for panel in panels] == [
        "M, all, temperature 1",
        "M at 64 nodes, temperature 1",
        "M at 64 nodes, temperature 0",
    ]
    assert panels[0].labels == ["8 nodes", "64 nodes"]
    assert panels[0].series == {"datastore": [1.0, 1.5], "hybrid": [2.0, 3.0]}
    assert panels[1].labels == ["chat", "coding,\nchat", "all"]
    assert panels[1].series["hybrid"] == [3.0, 3.0, 3.0]
