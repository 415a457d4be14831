"""A planner that always drafts and verifies trees of one size. The best size is known only afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.serving.decoding.engine.costs.draft_budget import DraftCandidate
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner


class FixedPlanner(VerifyAllPlanner):
    """Verifies the ``nodes`` best nodes of each request in every step. Not thread-safe."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._nodes = nodes

    def size_trees(self, candidates: Sequence[DraftCandidate], requests: int, rows: int, context: float) -> None:
        for each in candidates:
            each.verified += min(self._nodes, len(each.scores))
