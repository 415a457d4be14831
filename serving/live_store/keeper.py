"""The background thread of a live store: evicts, publishes and rewrites the log when it is time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from suffolk.datastore.errors import SuffolkError

log = logging.getLogger(__name__)


class Keeper:
    """Calls ``work`` when it is woken, and every ``seconds``. An error is logged and kept; the next call tries again."""

    def __init__(self, work: Callable[[], None], seconds: float = 1.0) -> None:
        self._work = work
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
        while not self._stopped.is_set():
            self._due.wait(self._seconds)
            self._due.clear()
            if self._stopped.is_set():
                return
            try:
                self._work()
            except (SuffolkError, OSError) as error:
                if str(error) != self.error:
                    log.warning("background work of a live store failed: %s", error)
                self.error = str(error)
                self._stopped.wait(self._seconds)  # a wake-up by each append must not repeat a failure at once
            else:
                self.error = None
