"""Formats the output of ``suffolk replay``, and judges its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffolk.benchmarks.plot import Panel
from suffolk.build_index.report import count
from suffolk.datastore.files import printable
from suffolk.datastore.text_table import format_table
from suffolk.serving.decoding.replay.recording import Recording
from suffolk.serving.decoding.replay.replayer import Replayed
from suffolk.serving.decoding.replay.summary import DEPTHS, summarize

LEAST_GAIN = 1.1
"""Least speed-up that counts as a gain. Smaller ones are within the noise of most machines."""
ALONE = "prompt-lookup"
"""The drafter that needs no datastore."""
FEW_TEXTS = 100
"""With fewer texts than this, the figure depends on the choice of texts."""

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
    """Return a row for each group, and a row for all recordings. ``seconds``: duration of the replay."""
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


def _row(name: str, nodes: int, group: str, replayed: Sequence[Replayed], planned: bool) -> dict[str, Any]:
    row = {"drafter": name, "nodes": nodes, "group": group} | summarize([each.stats for each in replayed])
    if planned:
        drafted = sum(each.seconds for each in replayed)
        row["speed_up"] = sum(each.plain_seconds for each in replayed) / drafted if drafted else 1.0
    return row


def _shares(shares: dict[str, float]) -> str:
    return ", ".join(f"{source} {share:.0%}" for source, share in shares.items()) or "-"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The best replay, and the conclusion from it.

    Attributes:
        answer: yes, no, or perhaps. Without costs, a gain is possible but not known.
        drafter, nodes: the best drafter and its largest tree.
        speed_up: the expected ratio to plain decoding; None without costs.
        mean_generated_length: M, which bounds the speed-up.
        reason: the cause, from the figures of this replay.
        alone: prompt lookup's speed-up, or its M without costs. None if prompt lookup was not replayed, or is the best.
        texts, tokens: the numbers of replayed texts and of their tokens.
    """

    answer: str
    drafter: str
    nodes: int
    speed_up: float | None
    mean_generated_length: float
    reason: str
    alone: float | None
    texts: int
    tokens: int

    def lines(self) -> list[str]:
        """The verdict as text."""
        with_it = f"with {self.drafter} and up to {self.nodes} nodes"
        best = self.mean_generated_length if self.speed_up is None else self.speed_up
        if self.answer == "perhaps":
            gain = f"at most {best:.2f} times as fast {with_it}, if a pass with drafts costs no more than a plain one; "
            gain += "add --costs FILE ('suffolk profile --output FILE') for the expected speed-up"
        elif self.speed_up is None:
            gain = f"at most {best:.2f} times as fast {with_it}, whatever passes cost"
        else:
            gain = f"expect {best:.2f} times the speed of plain decoding {with_it}, by the costs of passes"
        lines = [f"verdict: {self.answer}, {gain}", f"reason: {self.reason}"]
        if self.alone is not None:
            lines.append(f"{ALONE} alone: {self.alone:.2f}, so the other sources add {best - self.alone:+.2f}")
        few = f"; fewer than {FEW_TEXTS}, so other texts may give another figure" if self.texts < FEW_TEXTS else ""
        return [*lines, f"basis: {count(self.texts, 'text')}, {count(self.tokens, 'token')}{few}"]


def judge(rows: Sequence[dict[str, Any]]) -> Verdict:
    """Judge the rows of all replays, each over all recordings. With costs, every row has a ``speed_up``."""
    planned = "speed_up" in rows[0]
    figure = "speed_up" if planned else "mean_generated_length"
    best = max(rows, key=lambda row: float(row[figure]))
    helps = best[figure] >= LEAST_GAIN
    alone = [row[figure] for row in rows if row["drafter"] == ALONE]
    return Verdict(
        answer="no" if not helps else "yes" if planned else "perhaps",
        drafter=best["drafter"],
        nodes=best["nodes"],
        speed_up=best.get("speed_up"),
        mean_generated_length=best["mean_generated_length"],
        reason=_reason(best, planned),
        alone=max(alone) if alone and best["drafter"] != ALONE else None,
        texts=best["texts"],
        tokens=best["tokens"],
    )


def _reason(row: dict[str, Any], planned: bool) -> str:
    length, accepting = row["mean_generated_length"], row["acceptance_by_depth"][0]
    parts = [f"{accepting:.0%} of the passes accept a drafted token, which makes {length:.2f} tokens a pass"]
    if row["accepted_by_source"]:
        source, share = next(iter(row["accepted_by_source"].items()))
        parts.append(f"most of the accepted tokens come from {source} ({share:.0%})")
    if planned:
        parts.append(f"a pass with its draft takes {length / row['speed_up']:.2f} times as long as a plain one")
    return "; ".join(parts)
