"""Tests expected rounds. The recursion and the renewal sums equal linear systems, even at the limits of their ranges."""

from __future__ import annotations

import numpy as np
import pytest

from suffolk.serving.decoding.drafters.hierarchy.rounds import expected_rounds, gain_distribution, renewals
from tests.support.hierarchy_oracle import chain_rounds

RATES = [0.0, 1e-300, 1e-12, 0.1, 0.5, 0.75, 0.99, 1 - 1e-12, 1.0]


def geometric(rate: float, drafted: int) -> list[float]:
    """P(X = k), k = 1..drafted + 1."""
    return [*(rate ** (k - 1) * (1 - rate) for k in range(1, drafted + 1)), rate**drafted]


@pytest.mark.parametrize("drafted", [1, 2, 4, 7, 15])
def test_rounds_are_those_of_the_absorbing_chain(drafted: int) -> None:
    rounds = expected_rounds(RATES, drafted, 40)
    assert rounds.shape == (40, len(RATES))
    for column, rate in enumerate(RATES):
        solved = [chain_rounds(geometric(rate, drafted), needed) for needed in range(1, 41)]
        np.testing.assert_allclose(rounds[:, column], solved, rtol=1e-10)


def test_the_value_that_simulation_gives() -> None:
    assert round(float(expected_rounds(0.75, 4, 8)[-1]), 4) == 3.1060


def test_rounds_at_the_ends_are_exact() -> None:
    counts = np.arange(1, 1001)
    assert np.array_equal(expected_rounds(0.0, 3, 1000), counts)
    assert np.array_equal(expected_rounds(1.0, 3, 1000), -(-counts // 4))


@pytest.mark.parametrize("rate", RATES)
def test_the_law_of_geometric_runs_gives_the_same_rounds(rate: float) -> None:
    gains = gain_distribution(rate ** np.arange(6.0))
    np.testing.assert_allclose(gains, geometric(rate, 5), rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(np.cumsum(renewals(gains, 60), -1), expected_rounds(rate, 5, 60), rtol=1e-10)


def test_rounds_of_bursty_runs_are_those_of_the_chain() -> None:
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.full(9, 0.2), size=(3, 4))
    rounds = np.cumsum(renewals(laws, 30), -1)
    assert rounds.shape == (3, 4, 30)
    for row in np.ndindex(3, 4):
        solved = [chain_rounds(laws[row].tolist(), needed) for needed in range(1, 31)]
        np.testing.assert_allclose(rounds[row], solved, rtol=1e-10)


def test_renewals_of_certain_gains() -> None:
    assert renewals([0.0, 0.0, 1.0], 8).tolist() == [1, 0, 0, 1, 0, 0, 1, 0]
