"""A limit on the share of the time that costly work takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class DutyCycle:
    """Lets costly work run one piece at a time, and during at most ``share`` of the time, so that other work can go on.
    Thread-safe.

    After a piece of s seconds, the next one begins s * (1 / share - 1) seconds later at the earliest. The first piece does not
    wait.
    """

    def __init__(self, share: float) -> None:
        self._pause = 1 / share - 1
        self._lock = threading.Lock()
        self._free_at = 0.0

    @contextmanager
    def work(self) -> Iterator[None]:
        """Wait until work may run, then run the ``with`` block as one piece of work."""
        with self._lock:
            if (wait := self._free_at - time.monotonic()) > 0:
                time.sleep(wait)
            begin = time.monotonic()
            try:
                yield
            finally:
                end = time.monotonic()
                self._free_at = end + (end - begin) * self._pause
