"""A clock that only the simulation moves."""

from __future__ import annotations

from contextlib import AbstractContextManager

from suffolk.benchmarks.host.instant_model import replaced_clock


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
