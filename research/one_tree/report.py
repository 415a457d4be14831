"""Tables and plots of the hybrid measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from research.one_tree.compared_drafters import HYBRID
from research.one_tree.summary import MEAN
from suffolk.benchmarks.decode.options import PLAIN
from suffolk.benchmarks.decode.summary import ALL
from suffolk.benchmarks.plot import Panel
from suffolk.datastore.text_table import Table

PACKAGES = ("numpy", "torch", "transformers", "tokenizers", "matplotlib")
NOTES = (
    "M: tokens per target pass after the prompt pass. At equal numbers of nodes every step drafts and verifies every "
    "node, along the model's own recorded answers; a tree may have fewer nodes than the limit",
    "speed by the costs of passes: along the same answers, with the production planner; passes take the cost model's "
    "time; drafts take their measured time, or with --counted the stored time of draft models' passes",
    "tokens/s: over all tokens after the first; the planner sizes trees as in service; plain decoding and all "
    "drafters alternate prompt by prompt, in rotating order; identical: equal to plain decoding, token for token",
    f"{MEAN}: mean over prompt sets, with equal weights; {ALL}: all prompts together",
    "drafters learn from prompt to prompt, with the sets in turn; after an interruption they start fresh (runs: "
    "number of starts)",
    "drafters share loaded networks, so a network's learned calibration comes from the runs of all of them",
    "results of every prompt are in rows.jsonl beside the report, answers in answers-TEMPERATURE.jsonl",
    "sam-decoding, arctic-inference: the switching rules of those projects, which pick one source a step, applied to "
    "the sources of this repository",
)


def tables(results: dict[str, Any]) -> list[str | Table]:
    """Tables of M by temperature and number of nodes, tables of speed by temperature, and ratios below each."""
    summary, shown = results["summary"], list[str | Table]()
    for part in summary["nodes"]:
        shown.append(f"M at {part['nodes']} nodes, temperature {part['temperature']:g}, {part['prompts']} prompts:")
        shown += [_matrix(part["table"], "M"), *_ratio_lines(part), *_source_lines(part["table"]), ""]
    for part in summary["planned"]:
        shown.append(f"speed by the costs of passes, temperature {part['temperature']:g}, {part['prompts']} prompts:")
        shown += [_matrix(part["table"], "speed_up"), "M, as the planner chooses:", _matrix(part["table"], "M")]
        shown += [*_ratio_lines(part), ""]
    for part in summary["service"]:
        table = part["table"]
        shown.append(f"tokens/s in service, temperature {part['temperature']:g}, {part['prompts']} prompts:")
        shown += [
            _matrix(table, "tokens_per_second_total"),
            "times plain decoding:",
            _matrix(table, "speed_up_total_time"),
        ]
        shown += [*_ratio_lines(part), *_same_lines(table), ""]
    return shown


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot a chart for each table, with a bar for each drafter in every set.

    If M was measured at several numbers of nodes, plot its growth and the chart of the largest number.
    """
    summary = results["summary"]
    charts = [
        (f"M at {part['nodes']} nodes, temperature {part['temperature']:g}", "tokens a pass", "M", part["table"])
        for part in _largest(summary["nodes"])
    ]
    charts += [
        (f"by costs, temperature {part['temperature']:g}", "times plain decoding", "speed_up", part["table"])
        for part in summary["planned"]
    ]
    charts += [
        (
            f"in service, temperature {part['temperature']:g}",
            "times plain decoding",
            "speed_up_total_time",
            part["table"],
        )
        for part in summary["service"]
    ]
    return _growth(summary["nodes"]) + [
        Panel(title, unit, *_bars(table, field)) for title, unit, field, table in charts
    ]


def _by_temperature(parts: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Group the parts by temperature, smallest trees first."""
    temperatures = dict.fromkeys(part["temperature"] for part in parts)
    alike = [[part for part in parts if part["temperature"] == temperature] for temperature in temperatures]
    return [sorted(each, key=lambda part: part["nodes"]) for each in alike]


def _largest(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each[-1] for each in _by_temperature(parts)]


def _growth(parts: Sequence[dict[str, Any]]) -> list[Panel]:
    """Plot M of all prompts by the number of nodes, if there are several."""
    panels = []
    for each in _by_temperature(parts):
        if len(each) > 1:
            rows = [_whole(part["table"]) for part in each]
            series = {name: [row[name]["M"] for row in rows] for name in rows[0] if name != PLAIN}
            labels = [f"{part['nodes']} nodes" for part in each]
            panels.append(Panel(f"M, {ALL}, temperature {each[0]['temperature']:g}", "tokens a pass", labels, series))
    return panels


def _bars(table: dict[str, Any], field: str) -> tuple[list[str], dict[str, list[float | None]]]:
    groups = list(table)
    names = [name for name in table[groups[0]] if name != PLAIN]
    labels = [group.replace(", ", ",\n") for group in groups]
    return labels, {name: [table[group][name][field] for group in groups] for name in names}


def _whole(table: dict[str, Any]) -> dict[str, Any]:
    """The row over all prompts. If there is a single set, its row."""
    row: dict[str, Any] = table[ALL] if ALL in table else next(iter(table.values()))
    return row


def _matrix(table: dict[str, Any], field: str) -> Table:
    groups = list(table)
    names = list(table[groups[0]])
    return Table(["drafter", *groups], [[name, *(table[group][name][field] for group in groups)] for name in names])


def _ratio_lines(part: dict[str, Any]) -> list[str]:
    lines = [
        f"  {HYBRID} / best single source, {group}: {each['ratio']:.3f} ({each['best_single']})"
        for group, each in part["ratios"].items()
    ]
    return lines + [
        f"  {name} / {HYBRID}, {group}: {left:.3f}"
        for group, each in part["loss"].items()
        for name, left in each.items()
    ]


def _source_lines(table: dict[str, Any]) -> list[str]:
    accepted = table[ALL].get(HYBRID, {}).get("accepted_by_source", {})
    total = sum(accepted.values()) or 1
    shares = ", ".join(f"{source} {count / total:.0%}" for source, count in accepted.items())
    return [f"  accepted of {HYBRID}, {ALL}: {shares}"] if shares else []


def _same_lines(table: dict[str, Any]) -> list[str]:
    return [
        f"  {name}: outputs equal to plain {each['identical']} of {each['runs']}"
        + (f", largest gap {each['largest_near_tie_gap']:.2g}" if each["largest_near_tie_gap"] is not None else "")
        for name, each in _whole(table).items()
        if name != PLAIN
    ]
