"""A circuit breaker: a service that fails several times in a row is left alone, and probed once in a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class CircuitBreaker:
    """Closed until ``failures`` calls in a row have failed; then one call per ``pause`` seconds until one succeeds.

    So a hung service costs a caller one deadline per pause, not one per call. Thread-safe.
    """

    def __init__(self, failures: int = 3, pause: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._failures = failures
        self._pause = pause
        self._clock = clock
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._next_probe = 0.0

    @property
    def failing(self) -> bool:
        """Whether the last call that ended has failed."""
        return self._in_a_row > 0

    def is_open(self) -> bool:
        return self._in_a_row >= self._failures

    def admits(self) -> bool:
        """Whether a call may go ahead. A probe is let through once per pause, also if its caller never reports back."""
        with self._lock:
            if not self.is_open():
                return True
            now = self._clock()
            if now < self._next_probe:
                return False
            self._next_probe = now + self._pause
            return True

    def succeeded(self) -> None:
        with self._lock:
            self._in_a_row = 0

    def failed(self) -> None:
        with self._lock:
            self._in_a_row += 1
            self._next_probe = self._clock() + self._pause
