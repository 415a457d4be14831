"""The learning curve: losses and acceptance on training and held-out text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Point:
    """The head's quality after ``step`` steps.

    Attributes:
        tokens: trained on so far, repetitions included. ``seconds``: of training so far, over all runs.
        learning_rate: of the last step.
        loss, acceptance: of the steps since the last point; None before the first step.
        held_out_loss, held_out_acceptance: of held-out windows, with the head as it is; None if none are held out.
    """

    step: int
    tokens: int
    seconds: float
    learning_rate: float
    loss: float | None
    acceptance: list[float] | None
    held_out_loss: float | None
    held_out_acceptance: list[float] | None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def percentages(acceptance: list[float] | None) -> str:
    """Format acceptance by depth: "61 48 30 %"."""
    return "-" if acceptance is None else " ".join(f"{share * 100:.0f}" for share in acceptance) + " %"
