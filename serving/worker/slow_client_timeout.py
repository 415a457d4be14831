"""Cancels streams whose clients stopped reading."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, TypeVar

T = TypeVar("T")


class SlowClientTimeout:
    """Cancels a stream if its client takes longer than ``seconds`` to read one reply. Thread-safe.

    A client that does not read blocks its gRPC thread and counts as a call in flight. Its engine slot is free once the text
    has ended.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._sending: dict[object, tuple[float, Callable[[], Any]]] = {}

    def watch_stream(self, replies: Generator[T, None, None], cancel: Callable[[], Any]) -> Iterator[T]:
        """Yield ``replies``. Another thread calls ``cancel`` if a ``yield`` takes too long."""
        stream = object()
        with closing(replies):
            try:
                for reply in replies:
                    with self._lock:
                        self._sending[stream] = time.monotonic(), cancel
                    yield reply
                    self._remove(stream)
            finally:
                self._remove(stream)

    def run(self, stopping: threading.Event) -> None:
        """Check all streams periodically until ``stopping`` is set."""
        while not stopping.wait(self.seconds / 4):
            with self._lock:
                limit = time.monotonic() - self.seconds
                late = [cancel for since, cancel in self._sending.values() if since < limit]
            for cancel in late:
                cancel()

    def _remove(self, stream: object) -> None:
        with self._lock:
            self._sending.pop(stream, None)
