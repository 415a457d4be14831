"""The verdict of a replay: whether drafts make decoding faster, how much, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from suffolk.build_index.report import count

LEAST_GAIN = 1.1
"""A smaller speed-up is within the noise of most machines."""
ALONE = "prompt-lookup"
"""The drafter that needs no datastore."""
FEW_TEXTS = 100
"""With fewer texts, others may give another figure."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The best replay of all, and what it means.

    Attributes:
        answer: yes, no, or perhaps. Without costs, a gain is possible but not known.
        drafter, nodes: the best drafter and its largest tree.
        speed_up: the expected ratio to plain decoding; None without costs.
        mean_generated_length: M, which bounds the speed-up.
        reason: the cause, from the figures of this replay.
        alone: the figure of prompt lookup, in the same unit; None if it was not replayed, or is the best.
        texts, tokens: what the verdict rests on.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

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
    """The verdict on the rows of all replays, each over all recordings. With costs, all of them have a ``speed_up``."""
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
