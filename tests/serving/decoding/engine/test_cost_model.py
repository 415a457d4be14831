"""Tests the cost model: its estimates, its updates, and its measurement."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.engine.costs.cost_measurement import measure, time_points
from suffolk.serving.decoding.engine.costs.cost_model import CostModel, Sample, grid
from suffolk.serving.decoding.engine.model.target import Target
from tests.support.tiny_models import tiny_model

SIZES = (1, 2, 4, 8, 16, 32, 64)


def measured() -> CostModel:
    return CostModel(SIZES, (50.0, 70.0, 78.0, 89.0, 120.0, 175.0, 282.0), 0.9, 0.007, 0.0009)


def test_times_between_the_points_are_linear_and_go_on_behind_the_last() -> None:
    costs = CostModel([1, 2, 4], [1.0, 1.5, 2.5])
    assert [costs.time(rows, 1, 0) for rows in (1, 2, 3, 4, 6)] == [1.0, 1.5, 2.0, 2.5, 3.5]


def test_requests_and_contexts_add_their_terms() -> None:
    costs = measured()
    assert costs.time(8, 2, 100) == pytest.approx(89 + 2 * (0.9 + 0.7) + 0.0009 * 800)


@pytest.mark.parametrize("seed", range(10))
def test_more_never_costs_less_and_n_rows_never_more_than_n_passes_of_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    costs = CostModel(SIZES, (rng.random(7) * 100 + 1).tolist(), *rng.random(3).tolist())
    for _ in range(30):
        costs.update(int(rng.integers(8, 100)), int(rng.integers(1, 8)), 10.0, float(rng.random() * 300))
    rows = np.arange(1.0, 200.0)
    for requests, context in itertools.product((1, 3, 8), (0.0, 10.0, 1000.0)):
        times = costs.times(rows, requests, context)
        assert (np.diff(times) >= 0).all()
        assert (times <= costs.times(rows, requests + 1, context)).all()
        assert (times <= costs.times(rows, requests, context + 1)).all()
        assert (times <= rows * costs.time(1, 1, context) * (1 + 1e-9)).all()


def test_a_fit_finds_what_made_the_times() -> None:
    true = measured()
    samples = [
        Sample(rows * requests, requests, context, true.time(rows * requests, requests, context))
        for rows, requests, context in itertools.product(SIZES, (1, 2, 4, 8), (128, 1024))
        if rows * requests <= 64
    ]
    found = CostModel.fit(samples)
    for each in samples:
        assert found.time(each.rows, each.requests, each.context) == pytest.approx(each.seconds, rel=0.03)


def test_a_fit_needs_a_pass_of_one_row() -> None:
    with pytest.raises(InvalidArgument, match="no pass of one row"):
        CostModel.fit([Sample(2, 1, 10, 1.0)])


def test_passes_in_turn_correct_the_visited_size_and_its_neighbours() -> None:
    costs = CostModel([1, 2, 4, 8, 64], [1.0, 1.2, 1.4, 1.6, 4.0])
    for _ in range(100):
        costs.update(1, 1, 0.0, 1.0)
        costs.update(4, 1, 0.0, 2.0)
    assert costs.time(1, 1, 0.0) == pytest.approx(1.0, rel=0.03)
    assert costs.time(4, 1, 0.0) == pytest.approx(2.0, rel=0.03)
    assert 2.0 <= costs.time(8, 1, 0.0) < 2.4
    assert costs.time(64, 1, 0.0) < 5.0


def test_one_outlier_moves_little() -> None:
    costs = CostModel([1, 8], [1.0, 1.5])
    for _ in range(10):
        costs.update(1, 1, 0.0, 1.0)
    costs.update(8, 1, 0.0, 1000.0)
    assert costs.time(8, 1, 0.0) < 3.0
    assert costs.time(1, 1, 0.0) < 1.3


def ratio(costs: CostModel, deviations: float, rows: int = 8) -> float:
    """The cost of a pass of ``rows`` rows compared to one of a single row."""
    return float(costs.times(np.asarray([float(rows)]), 1, 0.0, deviations)[0]) / costs.time(1, 1, 0.0)


def test_a_size_that_is_not_used_becomes_uncertain_again() -> None:
    costs = CostModel([1, 8], [1.0, 4.0])
    assert ratio(costs, -1.0) < 3.2 < 4.0 < 4.8 < ratio(costs, 1.0)
    for _ in range(100):
        costs.update(1, 1, 0.0, 1.0)
        costs.update(8, 1, 0.0, 4.0)
    known = ratio(costs, -1.0)
    assert known > 3.8
    for _ in range(3000):
        costs.update(1, 1, 0.0, 1.0)
    assert ratio(costs, -1.0) < 0.9 * known
    assert ratio(costs, 0.0) == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_a_machine_of_another_speed_scales_everything(factor: float) -> None:
    costs = measured()
    before = costs.time(64, 4, 500)
    rng = np.random.default_rng(1)
    for _ in range(32):
        costs.update(1, 1, 500, factor * measured().time(1, 1, 500) * float(rng.uniform(0.9, 1.1)))
    assert costs.time(64, 4, 500) == pytest.approx(factor * before, rel=0.15)
    assert costs.slowdown == pytest.approx(factor, rel=0.1)


def test_a_machine_that_changes_its_speed_keeps_the_form_of_its_costs() -> None:
    """The speed changes by 30 % every forty passes, of which every tenth has one row."""
    costs, rng = measured(), np.random.default_rng(2)
    for step in range(800):
        rows = 1 if step % 10 == 0 else 16
        speed = 1.3 if step // 40 % 2 else 0.77
        costs.update(rows, 1, 100, speed * measured().time(rows, 1, 100) * float(rng.lognormal(0.0, 0.05)))
        if step > 100:
            found = costs.time(16, 1, 100) / costs.time(1, 1, 100)
            assert found == pytest.approx(measured().time(16, 1, 100) / measured().time(1, 1, 100), rel=0.15)


@pytest.mark.parametrize(
    ("sizes", "seconds"),
    [([], []), ([2], [1.0]), ([1, 1], [1.0, 1.0]), ([1, 2], [1.0]), ([1], [0.0]), ([1], [float("nan")])],
)
def test_points_that_are_no_curve_are_refused(sizes: list[int], seconds: list[float]) -> None:
    with pytest.raises(InvalidArgument, match="costs: "):
        CostModel(sizes, seconds)


def test_negative_terms_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="0 or more"):
        CostModel([1], [1.0], per_key=-1.0)


def test_a_target_is_measured_at_every_size_its_context_allows() -> None:
    costs = measure(Target.wrap(tiny_model(max_position_embeddings=48)), slots=3)
    assert {1, 3} <= set(costs.sizes.tolist()) <= {1, 2, 3, 4, 8, 16, 17, 32, 33}
    assert (costs.measured > 0).all()


def test_points_are_timed_in_rounds() -> None:
    reported: list[int] = []
    points = [(1, 1, 5), (2, 1, 5), (2, 3, 9)]
    samples = time_points(Target.wrap(tiny_model()), points, rounds=2, report=reported.append)
    assert reported == [1, 2, 3, 4, 5, 6]
    assert [(each.rows, each.requests, each.context) for each in samples] == [(1, 1, 5), (2, 1, 5), (6, 3, 9)]


def test_a_quick_look_takes_two_rounds_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: with one pass per point, eight rows once seemed to cost eight times one row. No draft was then verified."""
    seconds = itertools.count()
    monkeypatch.setattr("time.perf_counter", lambda: float(next(seconds)))  # three clock reads per pass
    points = [(1, 1, 5), (2, 1, 5), (4, 1, 5), (8, 1, 5), (16, 1, 5)]
    for budget, expected in ((8.0, 10), (60.0, 20), (2.0, 3)):
        reported: list[int] = []
        time_points(Target.wrap(tiny_model()), points, budget=budget, report=reported.append)
        assert reported[-1] == expected


def test_a_grid_goes_up_to_the_slots_and_the_largest_pass() -> None:
    points = grid([9, 5, 5], 7, 512)
    assert {(batch, context) for _, batch, context in points} == set(itertools.product((1, 2, 4, 7), (5, 9)))
    assert max(size * batch for size, batch, _ in points) == 256
    assert len(points) == len(set(points))


@pytest.mark.parametrize(
    ("contexts", "slots", "message"),
    [
        ([0], 1, "--contexts: 0 cannot be measured; each must be 1 or more"),
        ([449], 1, "--contexts: 449 cannot be measured: the model takes 512 tokens, 64 of them for the rows; give 448"),
        ([5], 0, "slots is 0; it must be between 1"),
        ([5], 257, "slots is 257; it must be between 1"),
    ],
)
def test_grids_that_cannot_be_measured_are_refused(contexts: list[int], slots: int, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        grid(contexts, slots, 512)
