"""When refused calls may be tried again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from suffolk.datastore.errors import SuffolkError, Unavailable

RETRY_KEY = "grpc-retry-pushback-ms"
"""Trailer of a refused gRPC call: milliseconds after which to try again (gRPC's A6). HTTP answers have Retry-After."""
RETRY_SECONDS = 0.1
"""Least time after which a refused caller is asked to come back."""
MAX_RETRY_SECONDS = 1.0
"""Longest time, unless a quota says another one. A server that stops or starts is tried again after this time, too."""
RETURNS_PER_SECOND = 250
"""Refused callers that are asked to come back in one second. More would take the time of calls that are answered."""


class RetryTimes:
    """Spreads the callers that a full server refuses, so that they do not all come back at once. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = 0.0

    def next(self) -> float:
        """Seconds after which the next refused caller shall come back: RETRY_SECONDS to MAX_RETRY_SECONDS."""
        with self._lock:
            now = self._clock()
            due = max(self._last + 1 / RETURNS_PER_SECOND, now + RETRY_SECONDS)
            self._last = min(due, now + MAX_RETRY_SECONDS)
            return self._last - now


def retry_seconds(error: Exception) -> float | None:
    """When the call that ``error`` refused may be tried again; None if the same call would fail again."""
    if isinstance(error, Unavailable):
        return error.retry_seconds or MAX_RETRY_SECONDS
    return error.retry_seconds if isinstance(error, SuffolkError) else None


def retry_trailer(seconds: float | None) -> tuple[tuple[str, str], ...]:
    """The trailing metadata of a refused gRPC call; none without ``seconds``."""
    return () if seconds is None else ((RETRY_KEY, str(round(1000 * seconds))),)


def sent_retry_seconds(metadata: object) -> float | None:
    """The inverse of ``retry_trailer``; None for a missing or malformed trailer."""
    for key, value in metadata or ():  # type: ignore[attr-defined]  # pairs
        if key == RETRY_KEY and isinstance(value, str) and value.isascii() and value.isdigit():
            return int(value) / 1000
    return None
