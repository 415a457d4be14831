"""Notices newly published generations of a datastore."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from suffolk.datastore.manifest import MANIFEST_NAME

CHECK_SECONDS = 0.2
"""Seconds between two checks. One check is one ``stat``, which also sees changes by other machines on shared disks."""
RETRY_SECONDS = 0.5
"""Seconds until ``on_change`` is called again after it returned False."""
LOG = logging.getLogger("suffolk.datastore")


class GenerationWatcher:
    """Calls a function in a thread whenever the manifest of a datastore is replaced. It opens nothing itself."""

    def __init__(self, store: Path, on_change: Callable[[], bool]) -> None:
        """Start to watch ``store``.

        Args:
            on_change: called once at the start, and after every replacement. It returns False to be called again after
                RETRY_SECONDS. If it raises, that is logged, and it is called again too.
        """
        self._manifest = store / MANIFEST_NAME
        self._on_change = on_change
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch-{store.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching. A running ``on_change`` is waited for."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        seen: tuple[int, ...] | None = ()
        seconds = 0.0
        while not self._closed.wait(seconds):
            seconds, found = CHECK_SECONDS, self._identity()
            if found == seen:
                continue
            seen = found
            if not self._call():
                seen, seconds = (), RETRY_SECONDS

    def _call(self) -> bool:
        try:
            return self._on_change()
        except Exception:  # without this thread, deleted text would be served for good
            LOG.exception("%s: the new generation is not served", self._manifest.parent)
            return False

    def _identity(self) -> tuple[int, ...] | None:
        """Differs after each replacement of the manifest; None if there is no manifest."""
        try:
            status = os.stat(self._manifest)
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
