"""Summarises M and tokens/s of each drafter by prompt set, and the gain of one tree over the best single source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from research.one_tree.compared_drafters import HYBRID, useless_names
from research.one_tree.run_log import Row
from suffolk.benchmarks.decode.summary import ALL
from suffolk.benchmarks.decode.summary import summarize as summarize_service

MEAN = "mean of sets"
"""Every prompt set has the same weight, regardless of its size."""
_SUMMED = ("tokens", "passes", "verified", "draft_failures", "plain_seconds", "seconds")


def summarize(rows: Sequence[Row], singles: Sequence[str]) -> dict[str, Any]:
    """Return the parts.

    ``nodes``: tables of M for each temperature and number of nodes. ``planned``: M, and speed-up computed from pass
    costs. ``service``: tokens/s for each temperature.

    Each part has three fields by set: ``table`` (set -> drafter -> results), ``ratios`` (one tree over the best of
    ``singles``), and ``loss`` (one tree with useless sources over one without).
    """
    replayed = {
        part: [
            {"temperature": temperature, "nodes": size}
            | _replayed(_where(rows, part, temperature, size), field, singles)
            for temperature, size in _keys(rows, part)
        ]
        for part, field in (("nodes", "M"), ("planned", "speed_up"))
    }
    service = [
        {"temperature": temperature, **_service(_where(rows, "service", temperature), singles)}
        for temperature in dict.fromkeys(row["temperature"] for row in rows if row["part"] == "service")
    ]
    return {**replayed, "service": service}


def ratios(table: Mapping[str, Mapping[str, Any]], field: str, singles: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each set: the best of ``singles`` by ``field``, and the ratio of one tree to it.

    Sets that lack one of the two values are left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for group, drafters in table.items():
        known = {name: drafters[name][field] for name in singles if drafters.get(name, {}).get(field)}
        own = drafters.get(HYBRID, {}).get(field)
        if known and own:
            best = max(known, key=lambda name: known[name])
            found[group] = {"best_single": best, "best": known[best], HYBRID: own, "ratio": own / known[best]}
    return found


def _keys(rows: Sequence[Row], part: str) -> list[tuple[float, int]]:
    return list(dict.fromkeys((row["temperature"], row["nodes"]) for row in rows if row["part"] == part))


def left_over(table: Mapping[str, Mapping[str, Any]], field: str) -> dict[str, dict[str, float]]:
    """For each set: the ratio of one tree with a useless source to one without."""
    return {
        group: {
            name: drafters[name][field] / drafters[HYBRID][field]
            for name in useless_names(True)[1:]
            if name in drafters
        }
        for group, drafters in table.items()
        if drafters.get(HYBRID, {}).get(field)
    }


def _where(rows: Sequence[Row], part: str, temperature: float, nodes: int | None = None) -> list[Row]:
    return [
        row
        for row in rows
        if (row["part"], row["temperature"]) == (part, temperature) and nodes in (None, row.get("nodes"))
    ]


def _replayed(rows: Sequence[Row], field: str, singles: Sequence[str]) -> dict[str, Any]:
    groups = list(dict.fromkeys(row["group"] for row in rows))
    names = list(dict.fromkeys(name for row in rows for name in row["drafters"]))
    table = {
        group: {name: _sum([row["drafters"] for row in rows if row["group"] == group], name) for name in names}
        for group in groups
    }
    means = {
        name: {each: _mean([table[group][name][each] for group in groups]) for each in ("M", "speed_up")}
        for name in names
    }
    table[ALL] = {name: _sum([row["drafters"] for row in rows], name) for name in names}
    return {"prompts": len(rows), **_judged(table | {MEAN: means}, field, singles)}


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    chosen = [row[name] for row in rows if name in row]
    total = Counter[str]()
    accepted = Counter[str]()
    for each in chosen:
        total.update({field: each[field] for field in _SUMMED})
        accepted.update(each["accepted_by_source"])
    return {
        "M": total["tokens"] / total["passes"] if total["passes"] else 1.0,
        "speed_up": total["plain_seconds"] / total["seconds"] if total["plain_seconds"] else None,
        "nodes_per_pass": total["verified"] / max(1, total["passes"]),
        "accepted_by_source": dict(accepted.most_common()),
        **total,
    }


def _service(rows: Sequence[Row], singles: Sequence[str]) -> dict[str, Any]:
    runs = [run for row in rows for run in row["runs"]]
    names = list(dict.fromkeys(run["drafter"] for run in runs))
    table: dict[str, dict[str, Any]] = dict(summarize_service(runs, names))
    groups = [group for group in table if group != ALL]
    fields = ("tokens_per_second_total", "speed_up_total_time", "mean_generated_length")
    table[MEAN] = {
        name: {field: _mean([table[group][name][field] for group in groups]) for field in fields} for name in names
    }
    return {"prompts": len(rows), **_judged(table, "tokens_per_second_total", singles)}


def _judged(table: dict[str, Any], field: str, singles: Sequence[str]) -> dict[str, Any]:
    return {"table": table, "ratios": ratios(table, field, singles), "loss": left_over(table, field)}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
