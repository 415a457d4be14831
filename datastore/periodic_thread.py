"""A thread that does the same work again and again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

LOG = logging.getLogger("suffolk.threads")


class PeriodicThread:
    """A daemon thread that calls ``work`` every ``seconds``, and when it is woken. Errors do not end it. Thread-safe.

    While calls raise or return False, the pause doubles after each of them, up to ``longest`` seconds.
    """

    def __init__(self, name: str, work: Callable[[], object], seconds: float, longest: float = 0.0) -> None:
        self._work, self._seconds, self._longest = work, seconds, longest
        self._due = threading.Event()
        self.closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Let the thread call ``work`` now, or once more if it is already working."""
        self._due.set()

    def close(self, seconds: float | None = None) -> None:
        """End the thread after its current call. Waits at most ``seconds`` for this call."""
        self.closed = True
        self._due.set()
        self._thread.join(seconds)

    def _run(self) -> None:
        pause = self._seconds
        while True:
            self._due.wait(pause)
            self._due.clear()
            if self.closed:
                return
            try:
                failed = self._work() is False
            except Exception:  # without the thread, its work would never be done again
                LOG.exception("the thread %s goes on after an error", self._thread.name)
                failed = True
            pause = max(self._seconds, min(2 * pause, self._longest)) if failed else self._seconds
