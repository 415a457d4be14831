"""The planner's search equals brute force, and the exact distribution equals the Markov chain of all buffers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffolk.serving.decoding.drafters.hierarchy.levels import Levels
from suffolk.serving.decoding.drafters.hierarchy.plan import plans_by_size, predict, search
from tests.support.examples import examples
from tests.support.hierarchy_oracle import fastest_plan, hierarchies, objective, real_seconds, some_levels


@examples(150)
@given(some_levels(), st.integers(1, 4))
def test_the_search_finds_what_brute_force_finds(levels: Levels, depth: int) -> None:
    least: dict[int, float] = {}
    for chosen, lengths in hierarchies(levels, depth):
        least[len(chosen)] = min(least.get(len(chosen), float("inf")), objective(levels, chosen, lengths))
    found = {len(each.chosen): each for each in search(levels, depth)}
    for size, each in found.items():
        assert each.objective == pytest.approx(least[size], rel=1e-9)
        assert each.objective == pytest.approx(objective(levels, each.chosen, each.lengths), rel=1e-9)
    assert min(least.values()) == pytest.approx(min(each.objective for each in found.values()), rel=1e-9)


@examples(150)
@given(some_levels(), st.data())
def test_the_exact_distribution_is_that_of_the_chain_of_buffers(levels: Levels, data: st.DataObject) -> None:
    chosen, lengths = data.draw(st.sampled_from(list(hierarchies(levels, 3))))
    seconds, tokens = real_seconds(levels, chosen, lengths)
    prediction = predict(levels, chosen, lengths)
    assert prediction.seconds == pytest.approx(seconds, rel=1e-9)
    assert prediction.tokens == pytest.approx(tokens, rel=1e-9)


@examples(150)
@given(some_levels(), st.integers(1, 8))
def test_surplus_tokens_only_help_where_they_cost_nothing_to_verify(levels: Levels, depth: int) -> None:
    flat = tuple(
        replace(each, seconds=each.seconds[0] if isinstance(each.seconds, tuple) else each.seconds)
        for each in levels.levels
    )
    for plan in plans_by_size(Levels(flat, levels.acceptance, levels.runs), depth):
        assert plan.seconds <= plan.objective * (1 + 1e-9)
        if len(plan.names) < 3:
            assert plan.seconds == pytest.approx(plan.objective, rel=1e-9)


@examples(150)
@given(some_levels(), st.integers(1, 8))
def test_no_plan_promises_more_time_than_the_target_alone(levels: Levels, depth: int) -> None:
    plan = fastest_plan(levels, depth)
    assert plan.speedup >= 1
    assert plan.speedup == pytest.approx(float(levels.levels[-1].pass_seconds(0)) / plan.seconds)
    assert all(1 <= length <= depth for length in plan.lengths)
