"""A datastore at a URL that is served from a copy on disk."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

from suffolk.build_index.progress import WorkProgress
from suffolk.datastore.errors import Corruption, PermissionDenied, ResourceExhausted, SuffolkError, Unavailable
from suffolk.datastore.manifest import MANIFEST_NAME, read_manifest
from suffolk.datastore.periodic_thread import PeriodicThread
from suffolk.datastore.remote_folder import RemoteFolder
from suffolk.datastore.watched_datastore import WatchedDatastore
from suffolk.serving.store.storage.generations import newest_number
from suffolk.serving.store.storage.origin import read_origin
from suffolk.serving.store.storage.pull import pull

POLL_SECONDS = 10.0
"""Seconds between two checks of the URL, by default. A check lists one folder."""
RETRY_SECONDS = 300.0
"""Longest time between two checks. Each failure in a row lengthens the time."""
CLOSE_SECONDS = 5.0
LOG = logging.getLogger("suffolk.storage")


class MirroredDatastore(WatchedDatastore):
    """Answers from the newest generation at a URL. ``store`` is the folder of its copy.

    A thread looks for new generations. The command ``suffolk pull`` copies each, in a process of its own: a download in this
    process would slow down callers. When the copy is whole, it is served like every new generation of a folder. While the URL
    cannot be reached, the last copy is served. Thread-safe.
    """

    def __init__(
        self,
        url: str,
        store: str | Path,
        residency: str = "mmap",
        threads: int = 0,
        poll_seconds: float = POLL_SECONDS,
        progress: WorkProgress | None = None,
    ) -> None:
        """Copy the newest generation first, with ``progress``. Other arguments and errors as for ``pull`` and ``open_datastore``.

        Raises:
            Unavailable, PermissionDenied, Corruption, ResourceExhausted: it cannot be copied, and there is no earlier copy.
        """
        self._remote = RemoteFolder(url)
        self._pull_problem = ""
        try:
            pull(url, store, progress=progress)
        except (Unavailable, PermissionDenied, Corruption, ResourceExhausted) as error:
            if not _is_copy(Path(store), self._remote.url):
                raise
            self._report(str(error))
        super().__init__(store, residency, threads)
        self._closed = False
        self._pulling: subprocess.Popen[str] | None = None
        self._thread = PeriodicThread(f"poll-{self.name}", self._look, poll_seconds, RETRY_SECONDS)

    @property
    def problem(self) -> str:
        """Why the newest generation is not served; empty if it is."""
        return self._pull_problem or super().problem

    def close(self) -> None:
        """Stop following, and close the current generation. Ends a running ``suffolk pull``; the next one continues its
        download."""
        self._closed = True
        if (pulling := self._pulling) is not None:
            pulling.terminate()
        # a request to the URL may take longer; the thread then ends with this process
        self._thread.close(CLOSE_SECONDS)
        super().close()

    def _look(self) -> bool:
        """Copy a new generation, if any. Returns whether the newest is here. If a segment at the URL is damaged,
        each check fetches it again."""
        try:
            if newest_number(self._remote) != read_manifest(self.path).generation:
                self._pull()
            self._report("")
        except SuffolkError as error:
            self._report(str(error))
        except Exception as error:
            self._pull_problem = str(error)
            raise
        return not self._pull_problem

    def _pull(self) -> None:
        """Copy the newest generation in a process. Raises Unavailable with the message of that process: it failed."""
        command = [sys.executable, "-m", "suffolk", "pull", self._remote.url, str(self.path)]
        LOG.info("%s has a new generation; copying it to %s", self._remote.url, self.path)
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as self._pulling:
            if self._closed:
                self._pulling.terminate()
            _, errors = self._pulling.communicate()
        code, self._pulling = self._pulling.returncode, None
        if code and not self._closed:
            last = errors.strip().rpartition("\n")[2] or f"it ended with code {code}"
            raise Unavailable(last.removeprefix("suffolk: "))

    def _report(self, problem: str) -> None:
        """Log a new problem once."""
        if problem and problem != self._pull_problem:
            LOG.error("%s; the copy of an earlier generation is served", problem)
        self._pull_problem = problem


def _is_copy(store: Path, url: str) -> bool:
    origin = read_origin(store) if (store / MANIFEST_NAME).is_file() else None
    return origin is not None and origin.url == url
