"""Tests the depth of neural drafts, and the decision to prefill their prompts."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.draft_budget import DraftBudget
from suffolk.serving.decoding.engine.policy.expansion_policy import ExpansionPolicy, saved_share
from suffolk.serving.decoding.engine.policy.prefill_policy import PrefillPolicy


def test_a_pass_pays_while_its_tokens_are_worth_more_than_its_time() -> None:
    policy = ExpansionPolicy(CostModel([1, 8], [1.0, 2.0]))
    assert policy.pays(0.5, 10.0, 1.0)
    assert not policy.pays(0.5, 3.0, 1.0)  # 0.6 of its best candidates are accepted at first
    assert policy.pays(0.01, 0.0, 1.0)  # the value is not known
    for _ in range(300):
        policy.learn(True)
    assert policy.pays(0.5, 3.0, 1.0)
    assert not policy.pays(0.5, 3.0, 2.0)


@pytest.mark.parametrize("seed", range(5))
def test_a_pass_expands_the_nodes_that_gain_most_above_its_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    contexts, values = np.array([10, 20]), rng.random(8)
    policy = ExpansionPolicy(CostModel([1, 4, 8], [1.0, 1.2, 3.0]), share=0.6)
    chosen = policy.choose(values, 2.0, contexts)
    gain = {
        each: 0.6 * 2.0 * values[list(each)].sum() - policy.costs.time(len(each), 2, 15.0)
        for size in range(1, 9)
        for each in itertools.combinations(range(8), size)
    }
    assert tuple(np.flatnonzero(chosen).tolist()) == max(gain, key=lambda each: gain[each])
    assert not policy.choose(values, 0.1, contexts).any()
    assert policy.choose(values, 0.0, contexts).all()


@pytest.mark.parametrize(
    ("accepted", "costs", "idle", "others", "expected"),
    [
        ([1.0], [0.5], 1.0, 0.0, 0.25),  # two tokens in the time of 1.5
        ([1.0, 1.5], [0.5, 2.0], 1.0, 0.0, 0.25),  # the better of the two
        ([1.0], [2.0], 1.0, 0.0, 0.0),  # none pays
        ([1.0], [0.5], 0.5, 1.0, 0.1),  # beside sources that add two tokens in every second step
        ([1.0], [0.5], 0.0, 3.0, 0.0),
    ],
)
def test_drafts_save_time_in_steps_in_which_others_bring_nothing(
    accepted: list[float], costs: list[float], idle: float, others: float, expected: float
) -> None:
    assert saved_share(accepted, costs, DraftBudget(others=others, idle=idle)) == pytest.approx(expected)


def test_a_prompt_is_read_if_drafts_save_more_in_the_rest_of_the_answer() -> None:
    policy, budget = PrefillPolicy(), DraftBudget(token_seconds=1.0)
    assert policy.reads(1, 0.1, 5.0, 200, budget)  # 12.8 tokens for the time of 5, with a margin
    assert not policy.reads(2, 0.1, 10.0, 200, budget)
    assert not policy.reads(3, 0.1, 5.0, 20, budget)  # the answer ends soon
    assert policy.refused == 2
    assert policy.reads(1, 0.0, 50.0, 1, budget)  # once yes, always yes
    for number in range(100):
        policy.release(number, 10)
    assert not policy.reads(4, 0.1, 5.0, 200, budget)  # answers are short here


def test_beside_others_some_steps_are_watched_before_a_prompt_is_read() -> None:
    policy, budget = PrefillPolicy(), DraftBudget(token_seconds=1.0, idle=0.9)
    assert [policy.reads(1, 0.1, 1.0, 200, budget) for _ in range(6)] == [False] * 4 + [True] * 2


def test_what_is_always_refused_is_tried_in_proportion_to_its_cost() -> None:
    """A refused prompt saves 0.005 tokens for each of the 128 expected ones; a prefill takes the time of 100 tokens."""
    policy, budget = PrefillPolicy(), DraftBudget(token_seconds=1.0)
    assert [number for number in range(1, 480) if policy.reads(number, 0.1, 100.0, 200, budget)] == [157, 314, 471]
