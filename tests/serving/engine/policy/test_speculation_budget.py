"""Tests the loss that a budget allows: in the long run, in one pass, and after an outlier."""

from __future__ import annotations

import pytest

from suffolk.serving.engine.policy.speculation_budget import SpeculationBudget


def steps_with_drafts(budget: SpeculationBudget, steps: int, loss: float) -> int:
    drafts = 0
    for _ in range(steps):
        budget.refill()
        if budget.allows:
            drafts += 1
            budget.add(-loss)
    return drafts


@pytest.mark.parametrize("loss", [0.05, 0.5, 5.0])
def test_drafts_without_gain_cost_one_percent_in_the_long_run(loss: float) -> None:
    budget = SpeculationBudget()
    budget.requests += 1
    assert steps_with_drafts(budget, 10_000, loss) * loss < 0.01 * 10_000 + 1 + loss


def test_an_empty_budget_pauses_until_it_holds_a_cheap_draft() -> None:
    budget = SpeculationBudget()
    budget.add(-1.5)
    paused = 0
    while not budget.allows:
        budget.refill()
        paused += 1
    assert paused == pytest.approx((0.5 + 0.3) / 0.01, abs=2)


def test_an_accident_is_forgotten() -> None:
    budget = SpeculationBudget()
    budget.requests += 1
    budget.add(-1e9)
    assert steps_with_drafts(budget, 3_000, 0.0) > 0


def test_gains_are_saved_up_to_a_bound() -> None:
    budget = SpeculationBudget()
    budget.add(1e9)
    assert budget.balance == 40
    assert budget.stake(1) == 10
    budget.add(-50.0)
    assert budget.stake(4) == pytest.approx(0.48)  # one more row may always be tried


def test_prefill_is_paid_little_by_little_and_in_full() -> None:
    budget = SpeculationBudget(refill=0.0)
    budget.add(30.0)
    before = budget.balance
    budget.defer(10.0)
    assert budget.balance == before
    budget.refill()
    assert budget.balance == pytest.approx(before - 0.3)
    for _ in range(300):
        budget.refill()
    assert budget.balance == pytest.approx(before - 10.0, abs=0.01)


def test_one_unusual_draft_is_deferred_and_slow_drafts_are_not() -> None:
    """A first lookup in a cold file takes the time of ten tokens, and is deferred.

    A drafter that always takes the time of three is soon stopped.
    """
    budget = SpeculationBudget()
    budget.spend(10.0)
    assert budget.allows
    slow = SpeculationBudget()
    drafts = 0
    for _ in range(200):
        slow.refill()
        if slow.allows:
            drafts += 1
            slow.spend(3.0)
    assert drafts <= 5
