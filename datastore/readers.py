"""Records which processes follow a datastore's generations, and which generation each of them serves.

Each follower holds a lock on a small file in the folder ``readers/`` of the datastore. The lock ends with the process, so
the file of a killed process counts as stale. ``delete``, ``compact`` and ``build`` list these processes.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import platform
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

READERS_NAME = "readers"
WAIT_SECONDS = 3.0
"""Default limit of ``wait_for_readers``: the interval at which processes check, their time to open files, and a margin."""
_POLL_SECONDS = 0.05
_MAX_BYTES = 4096
_LOG = logging.getLogger("suffolk.datastore")


@dataclass(frozen=True, slots=True)
class Reader:
    """One process that follows a datastore.

    Attributes:
        process: the process id, on its own machine.
        host: name of that machine.
        generation: the generation that its answers come from.
        seen: the newest generation that it has tried to serve.
        problem: why the process does not serve ``seen``; empty if it serves it.
    """

    process: int
    host: str
    generation: int
    seen: int
    problem: str = ""

    def has_settled(self, generation: int) -> bool:
        """Whether the process serves ``generation``, or has a reason not to."""
        return self.generation >= generation or (self.seen >= generation and bool(self.problem))


class ReaderFile:
    """The locked file of this process. Only one thread at a time may call ``write``."""

    def __init__(self, store: Path) -> None:
        """Create the file. If this fails, for example without permission to write, commands do not report this process."""
        self._path: Path | None = None
        name = f"{os.getpid()}-{secrets.token_hex(4)}"
        hidden = store / READERS_NAME / f".{name}"
        try:
            hidden.parent.mkdir(exist_ok=True)
            self._descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            self._path = hidden.rename(hidden.with_name(name))  # after locking, because unlocked files are removed
        except OSError as error:
            _LOG.info("%s: %s; delete and build cannot report this process", hidden.parent, error.strerror)

    def write(self, generation: int, seen: int, problem: str = "") -> None:
        """Publish what this process serves: the fields of ``Reader``."""
        if self._path is None:
            return
        record = json.dumps(asdict(Reader(os.getpid(), platform.node(), generation, seen, problem[:1024]))).encode()
        with suppress(OSError):  # the disk may be full: the record then stays unchanged
            os.pwrite(self._descriptor, record.ljust(_MAX_BYTES), 0)

    def close(self) -> None:
        """Remove the file."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._path = None


def read_readers(store: Path) -> list[Reader]:
    """The processes that follow ``store`` now. Removes the files of ended processes, if the caller has the permission."""
    readers = []
    for path in sorted((store / READERS_NAME).glob("[0-9]*")):
        with suppress(OSError, ValueError, TypeError):  # the file is gone, or is being written: the next call reads it
            readers += _read(path)
    return readers


def wait_for_readers(store: Path, generation: int, seconds: float = WAIT_SECONDS) -> list[Reader]:
    """Wait until every process that follows ``store`` serves ``generation``, or has a reason not to.

    Returns:
        The processes when the wait ends, after ``seconds`` at the latest.
    """
    end = time.monotonic() + seconds
    while True:
        readers = read_readers(store)
        if all(each.has_settled(generation) for each in readers) or time.monotonic() > end:
            return readers
        time.sleep(_POLL_SECONDS)


def reader_lines(readers: Sequence[Reader], generation: int) -> list[str]:
    """One line for each process: whether it serves ``generation``."""
    return list(dict.fromkeys(_line(each, generation) for each in readers))


def _read(path: Path) -> list[Reader]:
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return [Reader(**json.loads(file.read(_MAX_BYTES)))]
        path.unlink(missing_ok=True)
        return []


def _line(reader: Reader, generation: int) -> str:
    name = f"process {reader.process} on {reader.host}"
    if reader.generation >= generation:
        return f"{name} serves generation {reader.generation}"
    return f"{name} still serves generation {reader.generation}: {reader.problem or 'it has not answered yet'}"
