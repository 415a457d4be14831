"""When to send a call a second time, and how often (the tail at scale, Dean and Barroso 2013)."""

from __future__ import annotations

import threading

import numpy as np

HEDGE_SHARE = 0.05
"""Second calls for each first call, in the long run."""
BURST = 10.0
"""Second calls that may be saved up. They bridge the moment in which a server stalls, until calls avoid it."""
_WINDOW = 256
_REFRESH = 32
"""Answers after which the percentile is computed again."""
_PERCENTILE = 95


class HedgeBudget:
    """A token bucket: each call adds ``share`` of a hedge, up to ``most``. Thread-safe."""

    def __init__(self, share: float = HEDGE_SHARE, most: float = BURST) -> None:
        self._lock = threading.Lock()
        self._share, self._most = share, most
        self._tokens = most

    def add_call(self) -> None:
        with self._lock:
            self._tokens = min(self._most, self._tokens + self._share)

    def take(self) -> bool:
        """Take one hedge, if there is one."""
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


class LatencyWindow:
    """The 95th percentile of the last answers' seconds. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds = np.zeros(_WINDOW)
        self._count = 0
        self._percentile = float("inf")

    def observe(self, seconds: float) -> None:
        with self._lock:
            self._seconds[self._count % _WINDOW] = seconds
            self._count += 1
            if self._count % _REFRESH == 0:
                self._percentile = float(np.percentile(self._seconds[: self._count], _PERCENTILE))

    def hedge_delay(self, deadline: float) -> float:
        """Seconds after which a call is late: the percentile, but at most half of ``deadline``, so that a second call has time."""
        return min(self._percentile, deadline / 2)
