"""Tests the planner on the paper's example (costs and rates of its appendix B.3) and on trivial inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pytest

from suffolk.benchmarks.hierarchy.agreement import Agreement, ModelVariant
from suffolk.benchmarks.hierarchy.measurement import Measurements
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.hierarchy.level import Level, RunDistribution
from suffolk.serving.decoding.drafters.hierarchy.levels import Levels
from suffolk.serving.decoding.drafters.hierarchy.plan import Plan, fastest, plans_by_size, predict, search
from suffolk.serving.decoding.drafters.hierarchy.stack_spec import StackLevel
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.hierarchy_oracle import fastest_plan, objective
from tests.support.tiny_models import tiny_model

COSTS = (0.00001, 0.003, 0.01, 0.25, 4.0, 33.0)
RATES = (
    (None, 0.75, 0.50, 0.25, 0.00, 0.00),
    (None, None, 0.75, 0.50, 0.25, 0.05),
    (None, None, None, 0.75, 0.50, 0.30),
    (None, None, None, None, 0.75, 0.55),
    (None, None, None, None, None, 0.80),
    (None,) * 6,
)


def example(models: int) -> Levels:
    """Return the ``models`` largest of the example's six models."""
    first = 6 - models
    levels = tuple(Level(str(number + 1), COSTS[number]) for number in range(first, 6))
    return Levels(levels, tuple(row[first:] for row in RATES[first:]))


def by_objective(plans: list[Plan]) -> Plan:
    return min(plans, key=lambda plan: plan.objective)


@pytest.mark.parametrize(
    ("models", "latency", "plan"),
    [
        (1, "33.000", "6"),
        (2, "14.366", "5:5 > 6"),
        (3, "11.211", "4:4 > 5:8 > 6"),
        (4, "10.657", "3:6 > 4:7 > 5:8 > 6"),
        (5, "10.635", "2:2 > 3:6 > 4:7 > 5:8 > 6"),
        (6, "10.617", "1:5 > 3:6 > 4:7 > 5:8 > 6"),
    ],
)
def test_the_papers_example(models: int, latency: str, plan: str) -> None:
    best = by_objective(plans_by_size(example(models)))
    assert (f"{best.objective:.3f}", str(best)) == (latency, plan)


@pytest.mark.parametrize(
    ("models", "lengths", "seconds"),
    [(3, (4, 8), "10.791"), (3, (6, 6), "10.674"), (4, (6, 7, 8), "10.149"), (4, (6, 6, 7), "10.114")],
)
def test_what_its_hierarchies_really_cost(models: int, lengths: tuple[int, ...], seconds: str) -> None:
    assert f"{predict(example(models), range(models), lengths).seconds:.3f}" == seconds


def test_the_search_without_surplus_tokens_loses_little_in_the_example() -> None:
    least = min(predict(example(3), range(3), lengths).seconds for lengths in product(range(1, 10), repeat=2))
    assert f"{least:.3f}" == "10.674"
    assert fastest_plan(example(3)).seconds < 1.02 * least


def test_a_further_level_is_decided_by_the_exact_distribution() -> None:
    plans = plans_by_size(example(6))
    assert [len(plan.names) for plan in plans] == [1, 2, 3, 4, 5, 6]
    assert plans[5].objective > plans[4].objective  # without surplus tokens the sixth level does not pay
    assert plans[5].seconds < plans[4].seconds
    assert fastest_plan(example(6)) == plans[5]
    assert plans[5].speedup == pytest.approx(33 / plans[5].seconds)


def test_the_target_alone_may_be_best() -> None:
    slow = Levels((Level("draft", 0.9), Level("target", 1.0)), ((None, 0.5), (None, None)))
    plan = fastest_plan(slow)
    assert (str(plan), plan.seconds, plan.speedup, plan.tokens) == ("target", 1.0, 1.0, 1.0)
    assert fastest_plan(Levels((Level("target", (2.0, 3.0)),), ((None,),))).seconds == 2.0


def test_levels_whose_rates_are_not_known_are_no_neighbours() -> None:
    costs = (Level("small", 0.01), Level("middle", 0.1), Level("target", 1.0))
    unknown = Levels(costs, ((None, None, None), (None, None, 0.8), (None, None, None)))
    assert fastest_plan(unknown).names == ("middle", "target")
    alone = Levels(costs, ((None, None, None), (None, None, None), (None, None, None)))
    assert [plan.names for plan in plans_by_size(alone)] == [("target",)]
    below = Levels(costs, ((None, 0.9, None), (None, None, 0.8), (None, None, None)))
    assert fastest_plan(below).names == ("small", "middle", "target")


def test_a_pass_that_costs_more_with_its_length_gets_shorter_drafts() -> None:
    rates = ((None, 0.9), (None, None))
    flat = fastest_plan(Levels((Level("draft", 0.01), Level("target", 1.0)), rates))
    steep = fastest_plan(
        Levels(
            (
                Level("draft", 0.01),
                Level("target", (1.0, 1.2)),
            ),
            rates,
        )
    )
    assert steep.lengths < flat.lengths


def test_bursts_of_retrieval_make_longer_drafts_than_their_mean_rate() -> None:
    bursts = (0.8, *[0.0] * 14, 0.2)
    costs = (Level("datastore", 0.001, retrieval=True), Level("target", (1.0, 1.02)))
    law = Levels(costs, ((None, None), (None, None)), (RunDistribution("datastore", "target", bursts),))
    mean = Levels(costs, ((None, 0.2), (None, None)))
    assert fastest_plan(law).lengths == (15,)
    assert fastest_plan(law).tokens == pytest.approx(1 + 0.2 * 15)
    assert fastest_plan(mean).lengths < (15,)


def test_retrieval_with_a_rate_is_planned_by_what_it_finds() -> None:
    """The rate applies to found tokens only.

    A store that never finds a token is useless, and one that often finds none is worth less.
    """

    def plans(found: tuple[float, ...] | None) -> list[Plan]:
        store, target = Level("store", 0.00001, retrieval=True, found=found), Level("target", 0.033)
        return plans_by_size(Levels((store, target), ((None, 0.9), (None, None))))

    assert [(plan.tokens, plan.speedup <= 1) for plan in plans((1.0,))] == [(1.0, True)] * 2
    assert fastest_plan(Levels((Level("target", 0.033),), ((None,),))).names == fastest(plans((1.0,))).names
    half = fastest(plans((0.5, 0, 0.5)))
    assert half.tokens == pytest.approx(1 + 0.5 * (0.9 + 0.81))
    assert half.objective == pytest.approx(half.seconds)
    assert half.tokens < fastest(plans(None)).tokens


def test_what_retrieval_finds_counts_below_a_model_too() -> None:
    """Above a store that finds nothing, each round of a level gains one token."""
    costs = (Level("store", 0.001, retrieval=True, found=(1.0,)), Level("middle", 0.1), Level("target", 1.0))
    levels = Levels(costs, ((None, 0.9, None), (None, None, 0.8), (None, None, None)))
    assert predict(levels, (0, 1, 2), (3, 4)).seconds == pytest.approx(
        predict(levels, (1, 2), (4,)).seconds + 4 * 0.001 / predict(levels, (1, 2), (4,)).tokens
    )
    assert fastest_plan(levels).names == ("middle", "target")


def test_retrieval_drafts_at_the_bottom_alone() -> None:
    levels = (Level("draft", 0.001), Level("datastore", 0.0, retrieval=True), Level("target", 1.0))
    plans = plans_by_size(Levels(levels, ((None, 0.99, 0.1), (None, None, 0.6), (None, None, None))))
    assert [str(plan) for plan in plans] == ["target", "datastore:15 > target"]


def test_eighty_layers_are_planned() -> None:
    quality = [0.0, *sorted(((7 * layer) % 79 + 1) / 80 for layer in range(79))]
    layers = Levels(
        tuple(Level(f"layer {layer}", 0.001 * 1.05**layer) for layer in range(80)),
        tuple(tuple(1 - max(above - below, 0) for above in quality) for below in quality),
    )
    *_, last = found = list(search(layers, 15))
    assert len(last.chosen) > 3
    for each in found:
        assert each.objective == pytest.approx(objective(layers, each.chosen, each.lengths))
    single = min(objective(layers, (layer, 79), (length,)) for layer in range(79) for length in range(1, 16))
    assert found[1].objective == pytest.approx(single)
    assert fastest_plan(layers).seconds < single


@pytest.mark.parametrize("depth", [0, -1, 257, 2.0, True])
def test_depths_out_of_range_are_refused(depth: int) -> None:
    with pytest.raises(InvalidArgument, match="depth is "):
        plans_by_size(example(3), depth)


def test_a_depth_that_needs_too_much_memory_is_refused() -> None:
    levels = tuple(Level(str(number), 1.0 + number) for number in range(65))
    with pytest.raises(InvalidArgument, match="depth is 65; for 64 drafters it must be at most 64"):
        plans_by_size(Levels(levels, tuple((0.5,) * 65 for _ in levels)), 65)


class Written:
    """Runs stacks along one answer, where it is known which level accepts which token. Each token costs its level's seconds."""

    def __init__(
        self, accepts: Mapping[tuple[str, str], Sequence[bool]], seconds: Mapping[str, float], size: int
    ) -> None:
        self.accepts, self.seconds, self.size, self.spent = accepts, seconds, size, 0.0

    def call(self, place: int, stack: Sequence[tuple[str, int]]) -> int:
        """How many tokens the last level of ``stack`` hands up at ``place``."""
        *below, (name, tokens) = stack
        if not below:
            self.spent += tokens * self.seconds[name]
            return tokens
        gained = 0
        while gained < tokens:
            gained += self.round(min(place + gained, self.size - 1), below, name)
        return gained

    def round(self, place: int, below: Sequence[tuple[str, int]], name: str) -> int:
        drafted = self.call(place, below)
        self.spent += self.seconds[name] * (1 + drafted)
        agrees = self.accepts[below[-1][0], name]
        return 1 + next((k for k in range(drafted) if place + k < self.size and not agrees[place + k]), drafted)


@pytest.mark.parametrize("stack", [[("a", 3)], [("a", 2), ("b", 4)], [("a", 1), ("b", 3), ("c", 2)]])
def test_a_prediction_follows_the_answers(stack: list[tuple[str, int]]) -> None:
    """The stack runs along an answer whose tokens are accepted in bursts. Rounds that are independent would say otherwise."""
    random, size, names = np.random.default_rng(5), 600, ["a", "b", "c", "target"]
    bursts = np.repeat(random.random((16, size // 10)) < 0.6, 10, axis=1).reshape(4, 4, size)
    bursts[:, :, -40:] = False  # what the levels would accept after the end is not known
    accepts = {(below, above): bursts[i, j] for i, below in enumerate(names) for j, above in enumerate(names)}
    seconds = {"a": 0.125, "b": 0.25, "c": 0.5, "target": 1.0}
    model = Target.wrap(tiny_model())
    measured = Measurements(
        tuple(ModelVariant(name, model) for name in names),
        (),
        tuple(seconds[name] * np.arange(1.0, 3.0) for name in names),
        (),
        (Agreement(bursts.astype(float), [], []),),
        8,
    )
    place, passes, run = 1, 0, Written(accepts, seconds, size)
    while place < size:
        place, passes = place + run.round(place, stack, "target"), passes + 1
    prediction = walk_of(measured, stack)
    assert prediction == pytest.approx((passes, run.spent))


def walk_of(measured: Measurements, stack: Sequence[tuple[str, int]]) -> tuple[float, float]:
    """Passes and seconds of the only answer. The names are no levels that a command would take."""
    return measured.walk(measured.agreements[0], [name for name, _ in stack], [tokens for _, tokens in stack])


@pytest.mark.parametrize("length", [2, 4, 9])
def test_a_prediction_of_retrieval_follows_its_copies(length: int) -> None:
    """Short drafts begin many rounds within a long copy."""
    size, depth, copied = 4000, 12, 25
    left = np.maximum(copied - np.arange(size) % 50, 0)  # copies of 25 tokens, and 25 tokens of which none is found
    starts = (np.arange(depth) < left[:, None]).astype(float)
    found = np.minimum(left, depth)
    measured = Agreement(np.ones((1, 1, size)), [starts[None]], [found])
    target = ModelVariant("target", Target.wrap(tiny_model()))
    costs = np.linspace(1.0, 1.5, depth)
    prediction = Measurements((target,), ("prompt-lookup",), (costs,), (0.125,), (measured,), depth).predict(
        [StackLevel("prompt-lookup", length)]
    )
    place, rounds, seconds = 1, 0, 0.0
    while place < size:
        drafted = min(found[place], length)
        rounds, seconds, place = rounds + 1, seconds + 0.125 + costs[drafted], place + drafted + 1
    assert prediction.tokens == pytest.approx((size - 1) / rounds)
    assert prediction.seconds == pytest.approx(seconds / (size - 1))
