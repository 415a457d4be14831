"""A planner that ignores costs. Measurements and replays without a cost model use it."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import UNLIMITED, DraftBudget, DraftCandidate
from suffolk.serving.decoding.engine.policy.planner import Planner


class VerifyAllPlanner(Planner):
    """Drafts in every step, without a time limit, and verifies all nodes. Not thread-safe."""

    def __init__(self) -> None:
        super().__init__(CostModel([1], [1.0]))

    def may_draft(self, request_id: int) -> bool:
        return True

    def draft_budget(self, request_id: int, requests: int, context: float) -> DraftBudget:
        return UNLIMITED

    def size_trees(self, candidates: Sequence[DraftCandidate], requests: int, rows: int, context: float) -> None:
        for each in candidates:
            each.verified += len(each.scores)

    def record(
        self, candidates: Sequence[DraftCandidate], requests: int, rows: int, context: float, seconds: float | None
    ) -> None:
        """Does nothing: this planner learns no costs."""
