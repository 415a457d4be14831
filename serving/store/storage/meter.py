"""Counts the bytes of a transfer, and shows them."""

from __future__ import annotations

import threading
import time

from suffolk.build_index.progress import WorkProgress
from suffolk.build_index.report import megabytes
from suffolk.datastore.errors import Unavailable


class Meter:
    """The progress of a transfer of ``total`` bytes. Thread-safe."""

    def __init__(self, show: WorkProgress, work: str, total: int) -> None:
        self._show, self._work, self._total = show, work, total
        self._done = 0
        self._began = time.monotonic()
        self._stopped = False
        self._lock = threading.Lock()

    def add(self, size: int) -> None:
        """Count ``size`` further bytes.

        Raises:
            Unavailable: after ``stop``, so that the transfer ends.
        """
        with self._lock:
            if self._stopped:
                raise Unavailable("the transfer was stopped")
            self._done += size
            rate = self._done / max(time.monotonic() - self._began, 1e-9)
            facts = f"{megabytes(self._done)} of {megabytes(self._total)}, {rate / 1e6:.1f} MB/s"
            self._show.advance(self._work, self._done / max(1, self._total), facts)

    def stop(self) -> None:
        """Let the next ``add`` of any thread raise."""
        with self._lock:
            self._stopped = True
