"""The background thread of a live store: evicts, publishes and rewrites the log when it is time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


LONGEST_PAUSE = 64
"""Rounds."""


class Keeper:
    """Calls ``work`` when it is woken, and every ``seconds``. An error is logged and kept.

    A failed call is repeated after 1 round of ``seconds``, then after 2, 4, up to LONGEST_PAUSE rounds.

    Args:
        relieve: is called in each round meanwhile.
    """

    def __init__(
        self, work: Callable[[], None], seconds: float = 1.0, relieve: Callable[[], None] = lambda: None
    ) -> None:
        self._work = work
        self._relieve = relieve
        self._seconds = seconds
        self._due = threading.Event()
        self._stopped = threading.Event()
        self.error: str | None = None
        """The error of the last call; None if it succeeded."""
        self._thread = threading.Thread(target=self._run, name="suffolk-keeper", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Let the thread work now."""
        self._due.set()

    def close(self) -> None:
        """End the thread after its current call."""
        self._stopped.set()
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        pause = 1
        while not self._stopped.is_set():
            self._due.wait(self._seconds)
            self._due.clear()
            if self._stopped.is_set():
                return
            if self._try(self._work):
                self.error, pause = None, 1
                continue
            for _ in range(pause):  # a wake-up by each append must not repeat a failure at once
                if self._stopped.wait(self._seconds):
                    return
                self._try(self._relieve)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _try(self, work: Callable[[], None]) -> bool:
        """Whether ``work`` succeeds."""
        try:
            work()
        except Exception as error:  # noqa: BLE001  an error of any kind must not end the thread
            reason = str(error) or type(error).__name__
            if reason != self.error:
                log.warning("background work of a live store failed: %s", reason)
            self.error = reason
            return False
        return True
