"""The wish that a server stops: told by anybody, a signal handler included, and waited for."""

from __future__ import annotations

from queue import Empty, SimpleQueue

_LOOK = 0.2
"""Seconds: a signal that comes just before a wait begins does not end it, and its handler runs when it is looked up from."""


class ShutdownEvent:
    """Safe to share between threads, and with signal handlers.

    Not an ``Event``: a handler runs in the main thread, maybe just where that holds the event's lock, for which ``set`` would then
    wait for ever. ``SimpleQueue.put`` may be called anywhere.
    """

    def __init__(self) -> None:
        self._told: SimpleQueue[None] = SimpleQueue()

    def tell(self) -> None:
        """Let all that wait go on, now and later."""
        self._told.put(None)

    def wait(self) -> None:
        """Return once somebody has told."""
        while True:
            try:
                self._told.get(timeout=_LOOK)
            except Empty:
                continue
            self._told.put(None)
            return
