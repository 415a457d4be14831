"""The formulas agree with known queues."""

from __future__ import annotations

import math

import pytest

from suffolk.capacity.queueing import Response, Service


@pytest.mark.parametrize("utilisation", [0.1, 0.5, 0.85])
def test_exponential_service_times(utilisation: float) -> None:
    """M/M/1: the time of a call is exponential with mean 1 / (1 - utilisation)."""
    response = Response(Service(1.0, 1.0), utilisation)
    assert response.wait == pytest.approx(utilisation / (1 - utilisation))
    for share in (0.5, 0.9, 0.99):
        assert response.quantile(share) == pytest.approx(-math.log(1 - share) / (1 - utilisation), rel=0.06)


def test_equal_service_times() -> None:
    """M/D/1: the mean wait is half of that of M/M/1."""
    assert Response(Service(2.0, 0.01), 0.5).wait == pytest.approx(1.0, rel=1e-3)


def test_an_idle_server() -> None:
    response = Response(Service(0.004, 0.2), 0.0)
    assert response.wait == 0
    assert response.quantile(0.5) == pytest.approx(0.004, rel=0.03)


def test_the_last_of_many_servers_takes_longer() -> None:
    response = Response(Service(0.004, 0.3), 0.6)
    assert response.quantile(0.99) < response.quantile(0.99, 8) < response.quantile(0.99, 64)
