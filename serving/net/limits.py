"""Limits that all servers share, and the token bucket that holds a rate."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

MAX_THREADS = 1024
"""Most CPU threads of a model."""
MAX_METADATA_BYTES = 8 << 10
"""Headers of one call."""
PING_SECONDS = 20.0
"""Seconds between keepalive pings of a client. A server closes a connection that pings much more often."""
MAX_RETRY_SECONDS = 1.0
"""Longest time, unless a quota says another one. A server that stops or starts is tried again after this time, too."""
MAX_ERROR_TEXT = 1024
"""Characters of an error message on the wire, so that it fits into the trailers of a call."""


class TokenBucket:
    """Holds up to ``most`` tokens, at first all of them, and gains ``rate`` a second; both may be replaced. Thread-safe."""

    def __init__(self, rate: float, most: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.most, self._clock = rate, most, clock
        self._lock = threading.Lock()
        self._held, self._at = most, clock()

    def add(self, tokens: float) -> None:
        """Add ``tokens``. A negative number may leave a debt."""
        with self._lock:
            self._fill()
            self._held = min(self.most, self._held + tokens)

    def take(self, tokens: float, needed: float | None = None) -> float:
        """Take ``tokens`` if ``needed`` are held, by default as many. More than are held leave a debt.

        Returns the seconds until ``needed`` are held; 0: the tokens are taken.
        """
        needed = tokens if needed is None else needed
        with self._lock:
            self._fill()
            if self._held < needed:
                return (needed - self._held) / self.rate if self.rate else math.inf
            self._held -= tokens
            return 0.0

    def _fill(self) -> None:
        now = self._clock()
        self._held, self._at = min(self.most, self._held + (now - self._at) * self.rate), now
