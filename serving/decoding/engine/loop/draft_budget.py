"""The limits that the policy sets for one draft, and the value of an accepted token."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class DraftBudget:
    """Limits of one draft for one request.

    Times are a request's share of a step, in seconds; 0 if not known.

    Attributes:
        token_seconds: one token in plain decoding.
        row_seconds: one more row in a pass of the target.
        model_seconds: limit for passes of the drafter's own model; 0 allows no pass.
        speedup: recent tokens per second with drafts, divided by those of plain decoding; 1 or more.
        expected: tokens expected of other sources in this step.
        others: mean accepted tokens of other sources per step of the request.
        idle: share of the request's steps in which other sources add no token.
    """

    token_seconds: float = 0.0
    row_seconds: float = 0.0
    model_seconds: float = math.inf
    speedup: float = 1.0
    expected: float = 0.0
    others: float = 0.0
    idle: float = 1.0

    @property
    def value_seconds(self) -> float:
        """Seconds that an accepted token saves: fewer, the more drafts already speed up decoding."""
        return self.token_seconds / self.speedup

    @property
    def least_score(self) -> float:
        """The acceptance probability below which a node costs more than it saves."""
        return min(1.0, self.row_seconds / self.value_seconds) if self.value_seconds else 0.0


UNLIMITED = DraftBudget()


def mean_value(budgets: Iterable[DraftBudget]) -> float:
    """The mean ``value_seconds`` of one or more requests that share a pass."""
    return fmean(budget.value_seconds for budget in budgets)
