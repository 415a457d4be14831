"""A planner for measurements of what drafts are worth, whatever they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence

from suffolk.serving.engine.policy.cost_model import CostModel
from suffolk.serving.engine.policy.ledger import Ledger
from suffolk.serving.engine.policy.planner import DraftCandidate, Planner

_TOKEN_SECONDS = 1e6
"""What a token is said to cost: any pass of a drafter is then worth its time."""


class VerifyAllPlanner(Planner):
    """Asks for a draft in every step, verifies all that is drafted, and lets drafters take the time that they want; the clock
    decides nothing. Not thread-safe."""

    def __init__(self) -> None:
        super().__init__(CostModel([1], [_TOKEN_SECONDS]))

    def draft_stake(self, ledger: Ledger) -> float:
        return math.inf

    def choose(self, offers: Sequence[DraftCandidate], requests: int, rows: int, context: float) -> None:
        for offer in offers:
            offer.verified += len(offer.scores)

    def record(
        self, offers: Sequence[DraftCandidate], requests: int, rows: int, context: float, seconds: float | None
    ) -> None:
        """Nothing is learned from what passes cost."""
