"""The tables of ``research.gpu``: each figure of this checkout, beside the older checkout's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from suffolk.datastore.text_table import Table

Figures = dict[str, dict[str, object]]
"""Column by column, for each row. A figure that is missing is shown as "-"."""


@dataclass(frozen=True, slots=True)
class Results:
    """What one checkout gave: the document of each measurement, or the ``problems`` of failed measurements."""

    commit: str
    documents: dict[str, Any]
    problems: dict[str, str]


def page(found: Sequence[Results], machine: str) -> str:
    """All tables as Markdown. ``found``: this checkout, and maybe an older one."""
    lines = ["# Passes and decoding", "", f"{machine}, commit {found[0].commit}"]
    lines[-1] += f"; older: commit {found[1].commit}." if len(found) > 1 else "."
    for title, first, read in TABLES:
        sides = [read(each.documents) for each in found]
        table = beside(first, sides)
        if table.rows:
            lines += ["", f"## {title}", "", *_markdown(table)]
    problems = list(_problems(found))
    if problems:
        lines += ["", "## Not measured", "", *problems]
    return "\n".join(lines) + "\n"


def beside(first: str, sides: Sequence[Figures]) -> Table:
    """One table of all ``sides``; columns of the second one are named older."""
    rows = list(dict.fromkeys(row for side in sides for row in side))
    columns = list(dict.fromkeys(column for side in sides for row in side.values() for column in row))
    marks = ("", ", older")[: len(sides)]
    headers = [first, *(f"{column}{mark}" for column in columns for mark in marks)]
    cells = [[row, *(side.get(row, {}).get(column) for column in columns for side in sides)] for row in rows]
    return Table(headers, cells)


def _markdown(table: Table) -> Iterator[str]:
    yield f"| {' | '.join(table.headers)} |"
    yield f"| {' | '.join('--' for _ in table.headers)} |"
    for cells in table.cells():
        yield f"| {' | '.join(cells)} |"


def _problems(found: Sequence[Results]) -> Iterator[str]:
    for each in found:
        for name, problem in each.problems.items():
            yield f"- {each.commit}, {name}: {problem}"
        for kind in each.documents.get("passes", {}).get("passes", ()):
            if "problem" in kind:
                yield f"- {each.commit}, {kind['asked']} passes: {kind['problem']}"


def _kinds(documents: dict[str, Any], name: str = "passes") -> list[tuple[str, dict[str, Any]]]:
    """The kinds that were measured, each with the kind in use where that is another."""
    kinds = [each for each in documents.get(name, {}).get("passes", ()) if "problem" not in each]
    return [(each["asked"] + (f" ({each['kind']})" if each["kind"] != each["asked"] else ""), each) for each in kinds]


def _pass_times(documents: dict[str, Any]) -> Figures:
    figures: Figures = {}
    for name, kind in _kinds(documents):
        for requests, rows, context, whole, host in kind["points"]:
            row = figures.setdefault(f"{requests} x {rows} rows, {context:,} tokens", {})
            row[f"{name}, ms"], row[f"{name}, host ms"] = whole, host
    return figures


def _mixed_times(documents: dict[str, Any]) -> Figures:
    figures: Figures = {}
    for name, kind in _kinds(documents):
        for requests, prompt, whole, host in kind["mixed"]:
            row = figures.setdefault(f"{prompt:,} prompt tokens, {requests} requests decode", {})
            row[f"{name}, ms"], row[f"{name}, host ms"] = whole, host
    return figures


def _starts(documents: dict[str, Any]) -> Figures:
    layers = documents.get("passes", {}).get("layers")
    figures: Figures = {}
    for name, kind in _kinds(documents):
        kernels, busy = kind["kernels"] or (None, None)
        figures[name] = {
            "cold start, s": kind["start_seconds"],
            "first use of a shape, ms at most": kind["first_use_milliseconds"],
            "kernels": kernels,
            "kernels a layer": None if kernels is None else kernels / layers,
            "busy, ms": None if busy is None else busy / 1000,
        }
    for name, kind in _kinds(documents, "start"):
        figures.setdefault(name, {})["start with warm caches, s"] = kind["warm_start_seconds"]
    return figures


def _equal_bits(documents: dict[str, Any]) -> Figures:
    return {
        name: {
            **{layout: "{} of {}".format(*counts) for layout, counts in kind["equal_bits"].items()},
            "texts": "{} of {}".format(*kind["equal_texts"]),
            "sampled texts": "{} of {}".format(*kind["equal_samples"]),
        }
        for name, kind in _kinds(documents)
    }


def _results(documents: dict[str, Any], name: str) -> dict[str, Any]:
    """The results of a report of ``suffolk bench``; empty without one."""
    found: dict[str, Any] = documents.get(name, {}).get("results", {})
    return found


def _decoding(name: str) -> Callable[[dict[str, Any]], Figures]:
    """Reads the report of a decoding measurement: a row for each set and drafter."""

    def read(documents: dict[str, Any]) -> Figures:
        summary = _results(documents, name).get("summary", {})
        return {
            f"{group}: {way}": {
                "tokens/s": each.get("tokens_per_second_total"),
                "times plain": each.get("speed_up_total_time"),
                "M": each.get("mean_generated_length"),
                "nodes a step": each.get("nodes_verified_per_step"),
                "equal texts": f"{each.get('identical')} of {each.get('runs')}",
            }
            for group, ways in summary.items()
            for way, each in ways.items()
        }

    return read


def _step_parts(name: str) -> Callable[[dict[str, Any]], Figures]:
    """Reads milliseconds a step by part, over all sets."""

    def read(documents: dict[str, Any]) -> Figures:
        groups = list(_results(documents, name).get("summary", {}).values())
        ways = groups[-1] if groups else {}  # the last one holds all sets
        parts = {way: each.get("milliseconds_a_step") or {} for way, each in ways.items()}
        return {
            way: {**spent, "all but the pass": sum(value or 0.0 for part, value in spent.items() if part != "forward")}
            for way, spent in parts.items()
            if any(value for part, value in spent.items() if part != "forward")  # transformers has no parts
        }

    return read


def _batches(documents: dict[str, Any]) -> Figures:
    return {
        f"{size}: {way}": {
            "tokens/s": each.get("tokens_per_second"),
            "times plain": each.get("speed_up"),
            "tokens a pass": each.get("tokens_per_pass"),
            "equal texts": f"{each.get('identical')} of {each.get('requests')}",
        }
        for size, ways in _results(documents, "batch").get("batches", {}).items()
        for way, each in ways.items()
    }


def _bandwidth(documents: dict[str, Any]) -> Figures:
    limit = _results(documents, "decode").get("bandwidth")
    if limit is None:
        return {}
    return {
        "a plain pass": {
            "weights, MB": limit["weight_bytes_a_pass"] / 1e6,
            "device, GB/s": limit["device_bytes_a_second"] / 1e9,
            "ms": 1e3 * limit["plain_pass_seconds"],
            "share of the limit": limit["share_of_limit"],
        }
    }


TABLES: tuple[tuple[str, str, Callable[[dict[str, Any]], Figures]], ...] = (
    ("Time of a pass", "requests, rows of each, context", _pass_times),
    ("Prompts in steps", "read by one pass", _mixed_times),
    ("Starts and kernels", "passes", _starts),
    ("Rows with the bits of one-row passes, and drafted texts equal to plain ones", "passes", _equal_bits),
    ("The limit of memory bandwidth", "", _bandwidth),
    ("Decoding, greedy", "set: drafter", _decoding("decode")),
    ("Milliseconds a step, greedy", "drafter", _step_parts("decode")),
    ("Decoding at temperature 0.7", "set: drafter", _decoding("decode-0.7")),
    ("Milliseconds a step at temperature 0.7", "drafter", _step_parts("decode-0.7")),
    ("Decoding in fp32", "set: drafter", _decoding("decode-fp32")),
    ("Many requests at once", "requests: drafter", _batches),
)
