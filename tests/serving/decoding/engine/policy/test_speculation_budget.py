"""Tests the loss that a budget allows: in the long run, in one pass, and after an outlier."""

from __future__ import annotations

import pytest

from suffolk.serving.decoding.engine.policy.constants import START, START_UP
from suffolk.serving.decoding.engine.policy.speculation_budget import SpeculationBudget


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
    assert steps_with_drafts(budget, 10_000, loss) * loss < 0.01 * 10_000 + START + loss


def test_an_empty_budget_pauses_until_it_holds_a_cheap_draft() -> None:
    budget = SpeculationBudget()
    budget.add(-START - 0.5)
    paused = 0
    while not budget.allows:
        budget.refill()
        paused += 1
    assert paused == pytest.approx((0.5 + 0.3) / 0.01, abs=2)


def test_an_empty_budget_pauses_until_it_can_pay_for_a_tree() -> None:
    """Otherwise looking things up would use up all that is refilled, and no tree would ever be tried."""
    budget = SpeculationBudget()
    budget.trial = 0.65
    budget.add(-START)
    paused = 0
    while not budget.allows:
        budget.refill()
        paused += 1
    assert paused == pytest.approx((0.65 + 0.3) / 0.01, abs=2)
    assert budget.stake(1) >= 0.65


def test_an_accident_is_forgotten() -> None:
    budget = SpeculationBudget()
    budget.requests += 1
    budget.add(-1e9)
    assert steps_with_drafts(budget, 3_000, 0.0) > 0


def test_gains_are_saved_up_to_a_bound() -> None:
    budget = SpeculationBudget()
    budget.add(1e9)
    assert budget.balance == 40
    assert budget.stake(1) == 40
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


def test_a_cold_start_is_no_loss_and_slow_drafts_are_one() -> None:
    """A first draft of 200 ms, with tokens of 1 ms, is a cost of the start. A drafter that always takes 20 ms is stopped."""
    budget = SpeculationBudget()
    budget.spend(0.2, 0.001)
    assert budget.allows
    for _ in range(20):
        budget.spend(0.0005, 0.001)
        budget.add(0.6)
        budget.refill()
        assert budget.allows
    slow = SpeculationBudget()
    drafts = 0
    for _ in range(2000):
        slow.refill()
        if slow.allows:
            drafts += 1
            slow.spend(0.02, 0.001)
    assert drafts <= 4


def test_unusual_drafts_after_the_start_are_deferred_and_paid_in_full() -> None:
    budget = SpeculationBudget(refill=0.0)
    budget.add(30.0)
    for _ in range(5):
        budget.spend(0.001, 1.0)
    for _ in range(2):  # the first uses up what the start may cost
        before = budget.balance
        budget.spend(START_UP + 0.004, 1.0)
        assert budget.balance == pytest.approx(before - 0.004)
    for _ in range(300):
        budget.refill()
    assert budget.balance == pytest.approx(before - 0.004 - START_UP, abs=0.01)
