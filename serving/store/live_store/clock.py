"""The time of live documents: it never runs back, and no jump of the system's clock changes it."""

from __future__ import annotations

import time
from collections.abc import Callable


class StoreClock:
    """Seconds since 1970. The system's clock is read once; afterwards a steady clock counts.

    Args:
        last: the time of the newest document that exists. The clock starts there if the system's clock is behind it.
    """

    def __init__(
        self, last: int = 0, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._steady = steady
        now = wall()
        self.behind = max(0.0, last - now)
        """Seconds that the system's clock was behind the newest document when the store was opened."""
        self._offset = max(float(last), now) - steady()

    def now(self) -> int:
        """The time in whole seconds."""
        return int(self._offset + self._steady())

    def set(self, now: float) -> None:
        """Count on from ``now``: the time of the store that this one is a copy of."""
        self._offset = now - self._steady()
