"""What a draft may cost and what it is worth, as the policy tells a drafter."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, slots=True)
class DraftBudget:
    """Bounds of one draft of one request. All times are seconds of all running requests; 0: not known.

    Attributes:
        token_seconds: a token in plain decoding.
        row_seconds: one more row in a pass of the target.
        model_seconds: time that passes of a drafter's own model may take; 0: no pass.
        speedup: tokens per second of late, with drafts, over those of plain decoding; 1 or more.
        expected: tokens that drafts of other sources already bring in this step.
        others: tokens that those bring in a step of the request in the mean; idle: share of steps in which they bring none.
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
        """What an accepted token saves; less if tokens come fast anyway."""
        return self.token_seconds / self.speedup

    @property
    def least_score(self) -> float:
        """The acceptance probability below which a node does not repay its row."""
        return min(1.0, self.row_seconds / self.value_seconds) if self.value_seconds else 0.0


UNLIMITED = DraftBudget()


def mean_value(budgets: Iterable[DraftBudget]) -> float:
    """The mean ``value_seconds`` of one or more requests: a pass that they share pays for all of them or for none."""
    return fmean(budget.value_seconds for budget in budgets)
