"""Lets an open datastore take up the generations that any process publishes, and records which one it serves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from suffolk.datastore.errors import NotFound, SuffolkError, Unsupported
from suffolk.datastore.generation_watcher import GenerationWatcher
from suffolk.datastore.manifest import Manifest, read_manifest
from suffolk.datastore.readers import ReaderFile

LOG = logging.getLogger("suffolk.datastore")


class GenerationFollower:
    """Calls a function for every published generation. A thread notices them. Thread-safe.

    A generation that cannot be taken up is logged once. ``Unsupported`` ends the attempts until the next generation; after
    other errors they go on.
    """

    def __init__(self, path: Path, generation: Callable[[], int], take_up: Callable[[Manifest], bool]) -> None:
        """Begin to follow ``path``.

        Args:
            generation: returns the number of the generation that is served; 0 for none.
            take_up: serves the generation of a manifest, and returns False to be called again soon. It raises SuffolkError to
                keep what is served.
        """
        self._path = path
        self._generation = generation
        self._take_up = take_up
        self._seen = generation()
        self._problem = ""
        self._lock = threading.Lock()
        self._reader = ReaderFile(path)
        self._reader.write(self._seen, self._seen)
        self._watcher = GenerationWatcher(path, self.check)

    @property
    def problem(self) -> str:
        """Why the published generation is not served; empty if it is."""
        return self._problem

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
        self._watcher.close()
        self._reader.close()

    def _report(self, problem: str) -> None:
        """Log a new problem once, and record what is served."""
        if problem and problem != self._problem:
            LOG.error("%s; generation %d is still served", problem, self._generation())
        self._problem = problem
        self._reader.write(self._generation(), self._seen, problem)
