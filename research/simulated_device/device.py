"""The true times of a simulated device, and what disturbs them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from research.host_time.instant_model import replaced_clock
from suffolk.serving.decoding.engine.costs.cost_model import CostModel

_PERIOD = 3.0
"""Seconds between two changes of speed of an unsteady device."""


@dataclass(frozen=True, slots=True)
class Disturbances:
    """What makes a device differ from its cost table.

    Attributes:
        jitter: standard deviation of the logarithm of a pass's time.
        outliers: share of passes that take 3 to 30 times as long, because another program runs.
        unsteady: the device changes its speed every 3 seconds by up to this share, up or down.
        slow_from, slow_to: seconds between which everything takes twice as long.
    """

    jitter: float = 0.0
    outliers: float = 0.0
    unsteady: float = 0.0
    slow_from: float = 0.0
    slow_to: float = 0.0


QUIET = Disturbances()


class Device:
    """Tells how long passes and drafts take. Deterministic by seed. Not thread-safe.

    Attributes:
        costs: the true costs of undisturbed passes.
        clock: the clock that passes and drafts move.
    """

    def __init__(self, costs: CostModel, disturbances: Disturbances = QUIET, seed: int = 0) -> None:
        self.costs = costs.copy()
        self.clock = VirtualClock()
        self._disturbances = disturbances
        self._seed = seed
        self._random = np.random.default_rng(seed)

    def run_pass(self, rows: int, requests: int, context: float) -> None:
        """Let the time of a pass go by."""
        self.work(self.costs.time(rows, requests, context), self._noise())

    def work(self, seconds: float, noise: float = 1.0) -> None:
        """Let the time of ``seconds`` of work go by, at the device's present speed."""
        slow = 2.0 if self._disturbances.slow_from <= self.clock.now < self._disturbances.slow_to else 1.0
        if self._disturbances.unsteady:
            period = np.random.default_rng([self._seed, int(self.clock.now / _PERIOD)])
            slow *= float((1 + self._disturbances.unsteady) ** period.uniform(-1, 1))
        self.clock.advance(seconds * slow * noise, seconds)

    def _noise(self) -> float:
        noise, found = 1.0, self._disturbances
        if found.jitter:
            noise = float(self._random.lognormal(0.0, found.jitter))
        if found.outliers and self._random.random() < found.outliers:
            noise *= float(np.exp(self._random.uniform(np.log(3), np.log(30))))
        return noise


def costs_like(costs: CostModel, plain_seconds: float) -> CostModel:
    """``costs`` of a device whose plain pass without a context takes ``plain_seconds``; everything else in proportion."""
    factor = plain_seconds / float(costs.measured[0])
    terms = (factor * costs.per_request, factor * costs.per_key, factor * costs.per_pair)
    return CostModel(costs.sizes.astype(int).tolist(), (factor * costs.measured).tolist(), *terms)


def believed(
    costs: CostModel, rows: float = 1.0, everything: float = 1.0, errors: float = 0.0, seed: int = 0
) -> CostModel:
    """Costs as a wrong measurement gives them.

    Args:
        rows: factor of what further rows add to a pass of one row.
        everything: factor of all costs.
        errors: standard deviation of the logarithm of an independent error of each measured size.
    """
    random = np.random.default_rng(seed)
    added = [0.0, *(rows * (after - before) for before, after in pairwise(costs.measured.tolist()))]
    curve = (costs.measured[0] + np.cumsum(added)) * random.lognormal(0.0, errors, len(added)) * everything
    terms = (everything * costs.per_request, everything * costs.per_key, everything * costs.per_pair)
    return CostModel(costs.sizes.astype(int).tolist(), curve.tolist(), *terms)


@dataclass(frozen=True, slots=True)
class DraftTimes:
    """Seconds of a drafter's call: for the call itself, and for each request.

    Attributes:
        first: seconds of the first call.
    """

    call: float = 0.0
    request: float = 0.0
    first: float = 0.0


DraftSeconds = Callable[[int, int], float]
"""(number of the call from 0 on, requests) -> seconds."""


def seconds_of(times: DraftTimes) -> DraftSeconds:
    """The seconds of each call that ``times`` describe."""
    return lambda number, requests: times.call + requests * times.request + (0.0 if number else times.first)


class VirtualClock:
    """Seconds since the start of a simulation. Not thread-safe.

    Attributes:
        now: the time, in seconds.
        work: seconds that the same work takes on the undisturbed device.
    """

    def __init__(self) -> None:
        self.now = self.work = 0.0

    def advance(self, seconds: float, work: float) -> None:
        """Let ``seconds`` pass. Undisturbed, they would be ``work`` seconds."""
        self.now += seconds
        self.work += work

    def running(self) -> AbstractContextManager[None]:
        """Inside the block this clock replaces ``time.perf_counter`` in the whole process."""
        return replaced_clock(lambda: self.now)
