"""Tests the line that is fitted to a host's costs."""

from __future__ import annotations

import numpy as np
import pytest

from suffolk.serving.integrations.linear_costs import LinearCosts


def test_the_first_pass_gives_the_time_of_a_row() -> None:
    costs = LinearCosts(0.1)
    assert costs.time(1, 1, 0.0) == pytest.approx(1.0)
    costs.update(6, 1, 100.0, 0.3)
    assert costs.time(1, 1, 0.0) == pytest.approx(0.2)
    assert costs.slope == pytest.approx(0.02)


@pytest.mark.parametrize(("base", "slope"), [(0.1, 0.02), (0.3, 0.001), (0.05, 0.05)])
def test_noisy_passes_correct_it(base: float, slope: float) -> None:
    costs = LinearCosts()
    rng = np.random.default_rng(3)
    for _ in range(1500):
        rows = int(rng.integers(1, 10))
        busy = 3.0 if rng.random() < 0.05 else 1.0
        costs.update(rows, 1, 100.0, busy * (base + slope * rows) * rng.uniform(0.9, 1.1))
    assert costs.time(5, 1, 0.0) == pytest.approx(base + slope * 5, rel=0.1)
    assert costs.time(9, 1, 0.0) - costs.time(1, 1, 0.0) == pytest.approx(8 * slope, rel=0.25, abs=0.02)


def test_a_slow_first_pass_is_forgotten() -> None:
    costs = LinearCosts()
    for seconds in (5.0, 0.1, 0.1):
        costs.update(1, 1, 100.0, seconds)
    assert costs.time(1, 1, 0.0) == pytest.approx(0.1)


def test_passes_of_one_size_leave_the_share_of_a_row() -> None:
    costs = LinearCosts()
    for _ in range(2000):
        costs.update(3, 1, 100.0, 0.08)
    assert costs.time(3, 1, 0.0) == pytest.approx(0.08, rel=0.02)
    assert costs.slope == pytest.approx(0.1 * costs.time(1, 1, 0.0), rel=0.1)


def test_a_given_share_stays() -> None:
    costs = LinearCosts(0.02)
    for rows in (1, 9) * 50:
        costs.update(rows, 1, 100.0, 0.1 * rows)
    assert costs.slope == pytest.approx(0.02 * costs.time(1, 1, 0.0), rel=0.01)


def test_time_is_positive_and_rises() -> None:
    costs = LinearCosts()
    for rows in range(1, 9):
        costs.update(rows, 1, 100.0, 1.0 / rows)
    assert costs.time(9, 1, 0.0) >= costs.time(1, 1, 0.0) > 0
