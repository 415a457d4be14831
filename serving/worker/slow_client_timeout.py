"""Hangs up on clients that stopped reading."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any, TypeVar

T = TypeVar("T")


class Patience:
    """How long replies wait for their readers: who does not take one for ``seconds`` is hung up on.

    Flow control blocks the thread that sends, and with it a place of the worker, for as long as a client neither reads nor hangs
    up. The slot is not concerned: it is free once the text is done. Thread-safe.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._sending: dict[object, tuple[float, Callable[[], Any]]] = {}

    def send(self, replies: Generator[T, None, None], hang_up: Callable[[], Any]) -> Iterator[T]:
        """``replies``, watched: each yield must return in time, or ``hang_up`` is called from another thread."""
        stream = object()
        with closing(replies):
            try:
                for reply in replies:
                    with self._lock:
                        self._sending[stream] = time.monotonic(), hang_up
                    yield reply
                    self._forget(stream)
            finally:
                self._forget(stream)

    def watch(self, stop: threading.Event) -> None:
        """Look at all streams now and then, until ``stop`` is set."""
        while not stop.wait(self.seconds / 4):
            with self._lock:
                late = time.monotonic() - self.seconds
                hung = [hang_up for since, hang_up in self._sending.values() if since < late]
            for hang_up in hung:
                hang_up()

    def _forget(self, stream: object) -> None:
        with self._lock:
            self._sending.pop(stream, None)
