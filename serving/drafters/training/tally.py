"""Sums losses and acceptance by depth over batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.serving.drafters.training.head import HeadLoss


@dataclass(slots=True)
class Tally:
    """Sums over batches. Not thread-safe.

    Attributes:
        weight: counted predictions of the first depth. ``loss``: the sum of losses, each times its batch's weight.
        hits, seen: float64[depth], as in ``HeadLoss``.
    """

    weight: float = 0.0
    loss: float = 0.0
    hits: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    seen: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    def add(self, found: HeadLoss) -> None:
        """Add a batch."""
        hits, seen = found.hits.double().cpu().numpy(), found.seen.double().cpu().numpy()
        weight = float(seen[0])
        self.merge(Tally(weight, float(found.loss.detach()) * weight, hits, seen))

    def merge(self, other: Tally) -> None:
        """Add another tally."""
        self.weight += other.weight
        self.loss += other.loss
        self.hits = self.hits + other.hits if len(self.hits) else other.hits.copy()
        self.seen = self.seen + other.seen if len(self.seen) else other.seen.copy()

    @property
    def mean_loss(self) -> float:
        return self.loss / max(self.weight, 1.0)

    @property
    def acceptance(self) -> list[float]:
        """By depth: the share of right tokens among those whose predecessors in the draft were right."""
        return (self.hits / np.maximum(self.seen, 1.0)).tolist()  # type: ignore[no-any-return]

    def to_dict(self) -> dict[str, Any]:
        return {"weight": self.weight, "loss": self.loss, "hits": self.hits.tolist(), "seen": self.seen.tolist()}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Tally:
        return Tally(data["weight"], data["loss"], np.array(data["hits"]), np.array(data["seen"]))


def expected_tokens(acceptance: list[float]) -> float:
    """The expected accepted tokens of a draft with one candidate a depth."""
    return float(np.cumprod(acceptance).sum())
