"""Tests the gate of a source: what it weighs, and what a model's stake limits."""

from __future__ import annotations

import pytest

from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.policy.draft_gate import DraftGate


@pytest.mark.parametrize(
    ("own", "rows", "runs"),
    [
        (1.0, 0.7, True),  # the stake limits the model's own passes; the target's rows are limited by the planner
        (1.7, 0.0, False),
        (1.0, 2.5, False),  # dearer than its gain of 3 tokens
    ],
)
def test_the_stake_limits_the_time_of_the_model_alone(own: float, rows: float, runs: bool) -> None:
    gate = DraftGate(3.0)
    gate.learn_cost(own, rows)
    assert gate.seconds == own + rows
    assert gate.decide(DraftBudget(token_seconds=1.0, row_seconds=0.1, model_seconds=1.5)).run is runs


def test_a_refused_source_is_tried_when_its_cost_is_saved() -> None:
    gate = DraftGate(1.0)
    gate.learn_cost(1.998)
    budget = DraftBudget(token_seconds=1.0)
    assert [number for number in range(1000) if gate.decide(budget).run] == [399, 799]  # each 1.998 / 0.005 steps
