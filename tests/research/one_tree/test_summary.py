"""Tests the results of the hybrid measurement: sums by set, means of sets, ratios, tables and plots."""

from __future__ import annotations

from typing import Any

from research.one_tree.compared_drafters import HYBRID
from research.one_tree.report import plots
from research.one_tree.summary import MEAN, ratios, summarize


def row(group: str, prompt: str, **drafters: tuple[int, int]) -> dict[str, object]:
    counts = {
        name: {
            "tokens": tokens, "passes": passes, "verified": 2 * passes, "draft_failures": 0, "plain_seconds": 0.0, "seconds": 0.0,
            "accepted_by_source": {"datastore": tokens - passes},
        }
        for name, (tokens, passes) in drafters.items()
    }  # fmt: skip
    return {"part": "nodes", "temperature": 0.0, "nodes": 8, "group": group, "prompt": prompt, "drafters": counts}


def test_summary_sums_by_set_and_takes_the_mean_of_sets() -> None:
    rows = [
        row("code", "a", datastore=(30, 20), hybrid=(30, 10)),
        row("code", "b", datastore=(30, 10), hybrid=(30, 10)),
        row("chat", "c", datastore=(20, 20), hybrid=(20, 20)),
        row("chat", "one token"),
    ]
    [found] = summarize(rows, ["datastore"])["nodes"]
    table = found["table"]
    assert (table["code"]["datastore"]["M"], table["code"][HYBRID]["M"]) == (2.0, 3.0)
    assert (table["all"]["datastore"]["M"], table["all"][HYBRID]["M"]) == (80 / 50, 80 / 40)
    assert (table[MEAN]["datastore"]["M"], table[MEAN][HYBRID]["M"]) == (1.5, 2.0)
    assert table["all"][HYBRID]["accepted_by_source"] == {"datastore": 40}
    assert table["all"][HYBRID]["nodes_per_pass"] == 2.0
    assert found["prompts"] == 4
    assert found["ratios"]["code"] == {"best_single": "datastore", "best": 2.0, HYBRID: 3.0, "ratio": 1.5}
    assert found["loss"]["code"] == {}


def test_ratios_are_to_the_best_source_of_each_set() -> None:
    table = {"s": {"a": {"M": 1.0}, "b": {"M": 2.0}, HYBRID: {"M": 3.0}}, "t": {"a": {"M": 2.0}, HYBRID: {"M": 1.0}}}
    found = ratios(table, "M", ["a", "b"])
    assert [(each["best_single"], each["ratio"]) for each in found.values()] == [("b", 1.5), ("a", 0.5)]
    assert ratios(table, "M", ["none"]) == {}


def part(nodes: int, temperature: float, m: float) -> dict[str, Any]:
    row = {"none": {"M": 1.0}, "datastore": {"M": m / 2}, "hybrid": {"M": m}}
    return {"nodes": nodes, "temperature": temperature, "table": {"chat": row, "coding, chat": row, "all": row}}


def test_m_is_plotted_by_nodes_and_by_set_for_the_largest_trees() -> None:
    parts = [part(64, 1.0, 3.0), part(8, 1.0, 2.0), part(64, 0.0, 4.0)]
    panels = plots({"summary": {"nodes": parts, "planned": [], "service": []}})
    assert [panel.title for panel in panels] == [
        "M, all, temperature 1",
        "M at 64 nodes, temperature 1",
        "M at 64 nodes, temperature 0",
    ]
    assert panels[0].labels == ["8 nodes", "64 nodes"]
    assert panels[0].series == {"datastore": [1.0, 1.5], "hybrid": [2.0, 3.0]}
    assert panels[1].labels == ["chat", "coding,\nchat", "all"]
    assert panels[1].series["hybrid"] == [3.0, 3.0, 3.0]
