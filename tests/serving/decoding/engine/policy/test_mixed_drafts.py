"""Tests the planner with drafts of retrieval and models together: the losses of one do not pause the other."""

from __future__ import annotations

import numpy as np

from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftCandidate
from suffolk.serving.decoding.engine.policy.planner import Planner


class Mixed:
    """A request whose drafter combines retrieval and a model, with the gain and the time of each in a step."""

    def __init__(self) -> None:
        self.planner = Planner(CostModel([1, 2], [1.0, 1.0]))
        self.planner.open(0, "hybrid", mixes=True)

    def step(self, retrieved: int, of_models: int, seconds: float, model_seconds: float) -> float:
        """Run a step.

        Returns the allowed ``model_seconds`` of the draft, or -1 without a draft. Models draft only if it is not 0.
        """
        if not self.planner.may_draft(0):
            return -1.0
        stake = self.planner.draft_budget(0, 1, 0.0).model_seconds
        both = np.arange(retrieved + of_models) >= retrieved
        draft = DraftCandidate(0, np.ones(len(both), np.float32), both, seconds, model_seconds if stake else 0.0)
        draft.verified = len(both)
        draft.accept(np.arange(len(both)), len(both))
        self.planner.record([draft], 1, 1 + len(both), 0.0, None)
        return stake


def test_losses_of_models_do_not_pause_retrieval() -> None:
    mixed = Mixed()
    stakes = [mixed.step(1, 0, 0.0, 3.0) for _ in range(50)]
    assert min(stakes) == 0.0  # without models, not without a draft
    assert sum(stake > 0 for stake in stakes) < 25


def test_losses_of_retrieval_do_not_pause_models() -> None:
    mixed = Mixed()
    assert min(mixed.step(0, 2, 3.0 if number < 5 else 0.0, 0.5) for number in range(50)) > 0


def test_models_are_tried_again_from_the_gains_of_retrieval() -> None:
    with_gains, without = Mixed(), Mixed()
    trials = [
        sum(each.step(gain, 0, 0.0, 2.0) > 0 for _ in range(200)) for each, gain in ((with_gains, 2), (without, 0))
    ]
    assert trials[0] > 2 * trials[1] > 0
