"""Lets threads do costly work one at a time, and not all of the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Turns:
    """Costly work takes turns, and at most ``share`` of the time. So the step loop goes on beside it. Thread-safe.

    After a turn of s seconds, the next one begins s * (1 / share - 1) seconds later at the earliest. A single caller waits for
    nothing.
    """

    def __init__(
        self,
        share: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._pause = 1 / share - 1
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._free_at = 0.0

    @contextmanager
    def take(self, needed: bool = True) -> Iterator[None]:
        """Wait for a turn, which the ``with`` block is. Without ``needed`` the block runs at once."""
        if not needed:
            yield
            return
        with self._lock:
            begin = self._clock()
            if self._free_at > begin:
                self._sleep(self._free_at - begin)
                begin = self._clock()
            try:
                yield
            finally:
                end = self._clock()
                self._free_at = end + (end - begin) * self._pause

    def busy(self) -> bool:
        """Whether a turn is taken now, or waited for."""
        return self._lock.locked()
