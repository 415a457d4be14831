"""Times of calls at a server that answers one call after another (M/G/1), in closed form.

Calls come at random moments, and service times have a gamma distribution. The probability that a call waits is the utilisation.
The wait is modelled by a gamma distribution with the first two moments of Pollaczek and Khinchine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

MOST_UTILISATION = 0.85
"""Largest utilisation of a plan. Above it, each burst of calls changes the waits strongly."""
CHECKED_UTILISATION, MOST_SPREAD = 0.7, 1.25
"""Largest utilisation and spread of the service time at which the formulas were compared with a simulation."""
NORMAL = NormalDist()
_POINTS = np.arange(-3, 5, 0.08)
_WEIGHTS = np.exp(-(_POINTS**2) / 2) / np.exp(-(_POINTS**2) / 2).sum()
_HALVINGS = 25


@dataclass(frozen=True, slots=True)
class Service:
    """Service time of a call: ``mean`` seconds, and ``spread``, its standard deviation as a share of the mean."""

    mean: float
    spread: float


@dataclass(frozen=True, slots=True)
class Response:
    """Times of calls at a server that is busy for the share ``utilisation`` of its time: at least 0, and below 1."""

    service: Service
    utilisation: float

    @property
    def wait(self) -> float:
        """Mean seconds that a call waits for others."""
        return self.utilisation * self._waiting[0]

    @property
    def _waiting(self) -> tuple[float, float]:
        """Mean wait of the calls that wait, and its spread."""
        mean, square, idle = self.service.mean, self.service.spread**2, 1 - self.utilisation
        wait = mean * (1 + square) / (2 * idle)
        third = mean**2 * (1 + square) * (1 + 2 * square) / (3 * idle)
        return wait, math.sqrt(third + 2 * self.utilisation * wait**2 - wait**2) / wait

    def quantile(self, share: float, servers: int = 1) -> float:
        """Seconds within which this ``share`` of calls ends. A call ends when the last of ``servers`` servers answers.

        The formula assumes independent servers. In fact calls that come together also wait together, so the result is an upper
        bound.
        """
        late = 1 - share ** (1 / servers)
        services = self.service.mean * _gamma_quantiles(self.service.spread, _POINTS)
        wait, spread = self._waiting
        rare = NORMAL.inv_cdf(1 - late)
        low, high = 0.0, float(services[-1] + wait * _gamma_quantiles(spread, np.array([rare]))[0])
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            left = middle - services
            waits = np.where(left < 0, 1.0, self.utilisation * _gamma_tails(spread, np.maximum(left, 0) / wait))
            low, high = (low, middle) if (_WEIGHTS * waits).sum() < late else (middle, high)
        return high


def _gamma_quantiles(spread: float, normal: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Quantiles of a gamma distribution with mean 1, from quantiles of the normal distribution (Wilson and Hilferty)."""
    third = spread / 3
    return np.maximum(0.0, 1 - third**2 + normal * third) ** 3


def _gamma_tails(spread: float, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Probability of a value above each of ``values``, in a gamma distribution with mean 1."""
    third = spread / 3
    normal = (np.cbrt(values) - 1 + third**2) / third
    return np.array([math.erfc(each / math.sqrt(2)) / 2 for each in normal])
