"""Notices when a generation of a datastore is published, has it served, and records which generation is served."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from suffolk.datastore.errors import NotFound, SuffolkError, Unsupported
from suffolk.datastore.files import file_version
from suffolk.datastore.manifest import MANIFEST_NAME, Manifest, read_manifest
from suffolk.datastore.periodic_thread import PeriodicThread
from suffolk.datastore.readers import ReaderFile

CHECK_SECONDS = 0.2
"""Seconds between two checks. A check is one ``stat``. It also sees changes by other machines on shared disks."""
RETRY_SECONDS = 0.5
"""Longest pause after a failed attempt to serve a generation, until the next attempt."""
LOG = logging.getLogger("suffolk.datastore")


class GenerationFollower:
    """Calls a function when a thread notices a newly published generation. Thread-safe.

    Only the newest generation counts: one that is replaced before the thread notices it is skipped. If a generation cannot be
    served, this is logged once. After ``Unsupported``, only the next generation is tried. After other errors, the same generation
    is tried again.

    Attributes:
        problem: why the published generation is not served; empty if it is served.
    """

    def __init__(self, path: Path, generation: Callable[[], int], take_up: Callable[[Manifest], bool]) -> None:
        """Begin to follow ``path``.

        Args:
            generation: returns the number of the generation that is served; 0 for none.
            take_up: begins to serve the generation of a manifest. It returns False to be called again soon. It raises SuffolkError
                to keep the served generation.
        """
        self._path = path
        self._generation = generation
        self._take_up = take_up
        self._seen = generation()
        self.problem = ""
        self._lock = threading.Lock()
        self._reader = ReaderFile(path)
        self._reader.write(self._seen, self._seen)
        self._file: tuple[int, ...] | None = ()
        self._thread = PeriodicThread(f"watch-{path.name}", self._look, CHECK_SECONDS, RETRY_SECONDS)
        self._thread.wake()

    def check(self) -> bool:
        """Take up the published generation now. Returns False if a further call has work to do."""
        with self._lock:
            before = self._generation()
            try:
                manifest = read_manifest(self._path)
                self._seen = manifest.generation
                done = self._take_up(manifest)
            except SuffolkError as error:
                nothing_yet = isinstance(error, NotFound) and before == 0
                self._report("" if nothing_yet else str(error))
                return nothing_yet or isinstance(error, Unsupported)
            if self._generation() != before:
                LOG.info("%s: serves generation %d now", self._path, self._generation())
            self._report("")
            return done

    def close(self) -> None:
        """Stop following. A running ``take_up`` is waited for."""
        self._thread.close()
        self._reader.close()

    def _look(self) -> bool:
        """Return True if the manifest is unchanged since the last call, or is taken up now."""
        found = file_version(self._path / MANIFEST_NAME)
        if found != self._file and self.check():
            self._file = found
        return found == self._file

    def _report(self, problem: str) -> None:
        """Log a new problem once, and record what is served."""
        if problem and problem != self.problem:
            LOG.error("%s; generation %d is still served", problem, self._generation())
        self.problem = problem
        self._reader.write(self._generation(), self._seen, problem)
