"""Formats the output of ``suffolk replay``, and writes its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffolk.benchmarks.parts import Stop
from suffolk.benchmarks.plot import Panel
from suffolk.benchmarks.replay.verdict import judge
from suffolk.build_index.report import count
from suffolk.datastore.files import printable, write_json
from suffolk.datastore.text_table import format_table
from suffolk.datastore.version import __version__
from suffolk.serving.decoding.replay.recording import Recording
from suffolk.serving.decoding.replay.summary import DEPTHS, summarize

if TYPE_CHECKING:
    from suffolk.serving.decoding.drafters.retrieval.limits import Limits
    from suffolk.serving.decoding.replay.replayer import Replayed

ALL = "all"


def head_lines(paths: Sequence[Path], recordings: Sequence[Recording], costs: str) -> list[str]:
    """Describe the recordings, and state limits of the comparison."""
    lines = [
        f"replaying {count(len(recordings), 'text')} of {printable(recordings[0].model) or 'a model without a name'}, "
        f"{sum(len(each.generated) for each in recordings):,} tokens after "
        f"{sum(len(each.prompt) for each in recordings):,} "
        f"prompt tokens, from {', '.join(map(str, paths))}",
    ]
    measured = [each for each in recordings if each.counts]
    if measured:
        found = (f"{printable(name)} M {length:.2f}" for name, length in recorded_lengths(measured).items())
        lines.append("recorded live: " + ", ".join(found))
    if len({each.drafter for each in recordings}) > 1:
        lines.append(
            "several drafters generated these recordings. Prompts that they share are replayed several times; choose one "
            "drafter with --recorded-with DRAFTER"
        )
    others = sum(each.settings.verification != "match" for each in recordings)
    if others:
        lines.append(f"{others} recordings were not verified with 'match'; the replay uses 'match' for all")
    lines.append(f"costs: {costs}" if costs else "every step drafts, and all nodes are verified")
    return lines


def recorded_lengths(recordings: Sequence[Recording]) -> dict[str, float]:
    """Map from drafter to the mean tokens per target pass (M) of the recorded runs."""
    found: dict[str, float] = {}
    for name in sorted({each.drafter for each in recordings}):
        own = [each for each in recordings if each.drafter == name]
        steps = sum(each.counts.get("steps", 0) for each in own)
        found[name] = sum(len(each.generated) - 1 for each in own) / steps if steps else 1.0
    return found


def results(name: str, nodes: int, replayed: Sequence[Replayed], seconds: float, planned: bool) -> list[dict[str, Any]]:
    """Return a row for each group, and one for all recordings. ``seconds``: duration of the replay."""
    groups: dict[str, list[Replayed]] = {}
    for each in replayed:
        groups.setdefault(each.recording.group, []).append(each)
    rows = [_row(name, nodes, group, own, planned) for group, own in groups.items() if len(groups) > 1]
    tokens = sum(len(each.recording.generated) for each in replayed)
    return [
        *rows,
        _row(name, nodes, ALL, replayed, planned) | {"replayed_tokens_per_second": tokens / max(seconds, 1e-9)},
    ]


def result_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Format the table, explain its columns, and end with the verdict."""
    planned = any("speed_up" in row for row in rows)
    depths = [f"to {depth}" for depth in range(1, DEPTHS + 1)]
    headers = ["drafter", "nodes", "group", "texts", "M", "nodes/pass", *depths, *(["speed-up"] if planned else [])]
    cells = [
        [
            row["drafter"], row["nodes"], printable(row["group"]), row["texts"], f"{row['mean_generated_length']:.3f}",
            row["nodes_per_pass"], *(f"{share:.0%}" for share in row["acceptance_by_depth"]),
            *([f"{row['speed_up']:.2f}x"] if planned else []), _shares(row["accepted_by_source"]), row["draft_failures"],
            row.get("replayed_tokens_per_second"),
        ]
        for row in rows
    ]  # fmt: skip
    lines = [
        format_table([*headers, "accepted from", "failures", "replayed/s"], cells),
        "M: tokens per target pass, after the first token of each recording",
        "'to 1', 'to 2' ...: share of passes that accepted at least 1, 2 ... drafted tokens",
        "failures: drafts that failed",
    ]
    if planned:
        lines.append("speed-up: predicted ratio to plain decoding, computed from the pass costs")
    return [*lines, "", *judge([row for row in rows if row["group"] == ALL]).lines()]


def replay_panels(rows: Sequence[dict[str, Any]]) -> list[Panel]:
    """Plot M, and the speed-up if it was planned, by tree size: a bar for each drafter, over all recordings."""
    every = [row for row in rows if row["group"] == ALL]
    sizes, names = (list(dict.fromkeys(row[field] for row in every)) for field in ("nodes", "drafter"))
    found = {(row["drafter"], row["nodes"]): row for row in every}

    def panel(title: str, unit: str, field: str) -> Panel:
        bars = {name: [found[name, size][field] if (name, size) in found else None for size in sizes] for name in names}
        return Panel(title, unit, [f"up to {size} nodes" for size in sizes], bars)

    panels = [panel("M", "tokens a target pass", "mean_generated_length")]
    if "speed_up" in every[0]:
        panels.append(panel("expected speed-up", "times plain decoding", "speed_up"))
    return panels


def write_results(
    path: Path,
    recorded: Sequence[Path],
    datastores: Sequence[str],
    limits: Limits,
    recordings: Sequence[Recording],
    costs: str,
    rows: list[dict[str, Any]],
    stopped: Stop | None,
) -> None:
    """Write the report. Raises as ``write_json``."""
    document = {
        "version": __version__,
        "recordings": [str(each) for each in recorded],
        "model": recordings[0].model,
        "datastores": list(datastores),
        "limits": asdict(limits),
        "costs": costs or None,
        "recorded": recorded_lengths(recordings),
        "stopped": stopped,
        "verdict": judge([row for row in rows if row["group"] == ALL]).to_dict(),
        "results": rows,
    }
    write_json(path, document)


def _row(name: str, nodes: int, group: str, replayed: Sequence[Replayed], planned: bool) -> dict[str, Any]:
    row = {"drafter": name, "nodes": nodes, "group": group} | summarize([each.stats for each in replayed]).to_dict()
    if planned:
        drafted = sum(each.seconds for each in replayed)
        row["speed_up"] = sum(each.plain_seconds for each in replayed) / drafted if drafted else 1.0
    return row


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{source} {share:.0%}" for source, share in shares.items()) or "-"
