"""An event that asks a server to stop. Signal handlers may set it."""

from __future__ import annotations

from queue import Empty, SimpleQueue

_POLL_SECONDS = 0.2
"""Seconds between polls. A signal just before a wait does not interrupt the wait; its handler runs at the next poll."""


class ShutdownEvent:
    """Thread-safe, and safe in signal handlers.

    ``threading.Event`` is not: a handler that runs while the main thread holds the event's lock deadlocks in ``set``.
    ``SimpleQueue.put`` is reentrant.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Let all threads in ``wait`` return, now and later."""
        self._queue.put(None)

    def wait(self) -> None:
        """Block until ``set`` was called."""
        while True:
            try:
                self._queue.get(timeout=_POLL_SECONDS)
            except Empty:
                continue
            self._queue.put(None)  # for the other threads
            return
