"""A clock that only the simulation moves."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from unittest.mock import patch


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

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inside the block this clock replaces ``time.perf_counter`` in the whole process."""
        with patch.object(time, "perf_counter", lambda: self.now):
            yield
