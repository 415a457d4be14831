"""A circuit breaker: after several failures in a row, most calls fail immediately instead of waiting for their deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class CircuitBreaker:
    """Opens after ``max_failures`` failures in a row. An open breaker allows one call per ``retry_seconds``. Thread-safe.

    A hung server therefore costs one deadline per ``retry_seconds``, not one per call.

    Attributes:
        openings: how often it opened.
    """

    def __init__(
        self, max_failures: int = 3, retry_seconds: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_failures = max_failures
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._next_retry = 0.0
        self.openings = 0

    @property
    def healthy(self) -> bool:
        """Whether the last finished call succeeded."""
        return self._failures == 0

    def is_open(self) -> bool:
        return self._failures >= self._max_failures

    def allows_call(self) -> bool:
        """Whether to send a call now. An open breaker allows the next retry even if the last one has not ended."""
        with self._lock:
            if not self.is_open():
                return True
            now = self._clock()
            if now < self._next_retry:
                return False
            self._next_retry = now + self._retry_seconds
            return True

    def record_success(self) -> None:
        with self._lock:
            self._failures = 0

    def record_failure(self) -> None:
        with self._lock:
            self._failures += 1
            self.openings += self._failures == self._max_failures
            self._next_retry = self._clock() + self._retry_seconds
