"""The write-ahead log of a live store: each change is written to it before the change is visible.

Order of writes and syncs (docs/design/live-store.md): a record is written, and synced before its acknowledgement if durability
is "always". Before a new file is made, the previous file is synced. Then the new file is synced with its header, and
then its folder. The first record of the new file comes after that. A checkpoint is synced under a temporary name, then
renamed, then its folder is synced. Only then are the files that it replaces removed, oldest first.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

from suffolk.datastore.errors import SuffolkError, Unavailable
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.files import fsync_directory
from suffolk.datastore.periodic_thread import PeriodicThread
from suffolk.serving.store.live_store.log_file import (
    HEADER_BYTES,
    LogFile,
    checkpoint_path,
    create_file,
    header,
    log_path,
    refused,
    write_all,
    write_file,
)
from suffolk.serving.store.live_store.read_log import RecoveredLog
from suffolk.serving.store.live_store.record import PREFIX, checksum_of, frame

ALWAYS, INTERVAL, NONE = DURABILITIES = ("always", "interval", "none")
FILE_BYTES = 64 << 20
"""A log file that has this size is followed by a new one."""


class Log:
    """The open log of one store. Thread-safe, except that ``write``, ``withdraw`` and ``rotate`` need one caller at a time.

    Args:
        folder: the folder of the files, made by the caller.
        recovered: what ``read_log`` found there.
        durability: ``always``: ``acknowledge`` waits until the change is on disk; concurrent callers share one sync.
            ``interval``: a thread syncs every ``interval`` seconds. ``none``: the system decides.

    Attributes:
        file_bytes: size at which a new file is begun.
        failure: why the log takes no more changes; None if it does.
        refusal: why the last record was refused, such as a full disk; None if it was written.
    """

    def __init__(
        self, folder: Path, recovered: RecoveredLog, durability: str = INTERVAL, interval: float = 0.1
    ) -> None:
        self._folder = folder
        self._durability = durability
        self.file_bytes = FILE_BYTES
        self._closed = list(recovered.files)
        self._number = max((file.number for file in recovered.files), default=0)
        self._previous = recovered.files[-1].size if recovered.files else 0
        self._last = recovered.files[-1].last if recovered.files else 0  # checksum of the last record
        self._last_but_one = 0
        self._descriptor: int | None = None
        self._salt = 0
        self._size = 0
        self._newest = 0
        self._written = self._synced = 0  # bytes since this process opened the log
        self.failure: str | None = None
        self.refusal: str | None = None
        self._lock = threading.Lock()
        self._sync_lock = threading.Lock()  # taken before _lock
        for path in recovered.leftovers:
            path.unlink(missing_ok=True)
        self._thread = PeriodicThread("suffolk-log", self._sync_regularly, interval) if durability == INTERVAL else None

    @property
    def total_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self._closed) + self._size

    @property
    def file_count(self) -> int:
        """Number of files."""
        return len(self._closed) + (self._descriptor is not None)

    @property
    def unsynced_bytes(self) -> int:
        """Bytes that are written, and that a power loss may lose."""
        return max(0, self._written - self._synced)

    def write(self, body: bytes, newest: int) -> int:
        """Write the record with this ``body``; returns the offset to ``acknowledge``. A refused record leaves no trace.

        Args:
            newest: the highest sequence of a document in the record; 0 if it has no documents.

        Raises:
            ResourceExhausted: the disk is full. A later call works again when there is space.
            Unavailable: an earlier sync failed, or the log is closed.
        """
        if self._descriptor is None or self._size >= self.file_bytes:
            self.rotate()
        with self._lock:
            descriptor = self._require()
            record = frame(body, self._salt, self._last)
            try:
                write_all(descriptor, record)
            except OSError as error:
                self._cut(descriptor, self._size)
                problem = refused(log_path(self._folder, self._number), error)
                self.refusal = str(problem)
                raise problem from error
            self.refusal = None
            self._last_but_one, self._last = self._last, checksum_of(record)
            self._size += len(record)
            self._written += len(record)
            self._newest = max(self._newest, newest)
        failpoint("log.written")
        return self._written

    def withdraw(self, body: bytes) -> None:
        """Remove the record with this ``body``. It must be the last record, and must not be acknowledged yet."""
        size = PREFIX.size + len(body)
        with self._sync_lock, self._lock:
            self._cut(self._require(), self._size - size)
            self._last = self._last_but_one
            self._size -= size
            self._written -= size
            self._synced = min(self._synced, self._written)

    def acknowledge(self, offset: int | None = None) -> bool:
        """Make changes as durable as ``durability`` says, before their caller gets an answer. Copies on other servers are not
        awaited; ``Feed.await_copies`` does that.

        With ``always``, waits until everything up to ``offset`` (default: everything written) is on disk. Otherwise
        returns at once. Returns whether everything up to ``offset`` is on disk.

        Raises:
            Unavailable: the sync failed; it is unknown what is on disk. The log takes no more changes.
        """
        offset = self._written if offset is None else offset
        if self._durability == ALWAYS:
            self.sync(offset)
        return self._synced >= offset

    def sync(self, offset: int | None = None) -> None:
        """Sync the file unless everything up to ``offset`` (default: everything written) is on disk already.

        Raises:
            Unavailable: as ``acknowledge``.
        """
        with self._sync_lock:
            with self._lock:
                descriptor, written = self._descriptor, self._written
            if self.failure is not None:
                raise Unavailable(self.failure)
            if descriptor is None or self._synced >= (written if offset is None else offset):
                return
            self._fsync(descriptor)
            self._synced = written
        failpoint("log.synced")

    def rotate(self) -> int:
        """Begin a new file, unless the current file holds no record. Returns the number of the file before it.

        The file before it does not change any more.

        Raises:
            ResourceExhausted, Unavailable: see ``write``; the current file stays in use.
        """
        with self._sync_lock:
            if self.failure is not None:
                raise Unavailable(self.failure)
            if self._descriptor is not None and self._size == HEADER_BYTES:
                return self._number - 1
            if self._descriptor is not None:
                self._fsync(self._descriptor)
                self._synced = self._written
            failpoint("rotate.synced")
            path = log_path(self._folder, self._number + 1)
            previous = self._previous if self._descriptor is None else self._size
            salt = secrets.randbits(32)
            descriptor = create_file(path, header(salt, previous, self._last))
            failpoint("rotate.created")
            with self._lock:
                if self._descriptor is not None:
                    os.close(self._descriptor)
                    self._closed.append(self._current())
                self._descriptor, self._salt, self._number = descriptor, salt, self._number + 1
                self._last = salt
                self._size, self._newest = HEADER_BYTES, 0
        return self._number - 1

    def checkpoint(self, through: int, bodies: Iterable[bytes], newest: int) -> None:
        """Replace all files up to number ``through`` by records with these ``bodies``, which hold the remaining documents of
        these files.

        Raises:
            ResourceExhausted: the disk is full; the files stay.
        """
        path = checkpoint_path(self._folder, through)
        temporary = path.with_name(path.name + ".tmp")
        salt = secrets.randbits(32)
        size = write_file(temporary, chain([header(salt)], _chained(bodies, salt)))
        failpoint("checkpoint.written")
        os.rename(temporary, path)
        failpoint("checkpoint.renamed")
        fsync_directory(self._folder)
        with self._lock:
            replaced = [file for file in self._closed if file.number <= through]
            kept = [file for file in self._closed if file.number > through]
            self._closed = [LogFile(path, through, size, newest, 0), *kept]
        for file in replaced:
            if file.path != path:
                file.path.unlink(missing_ok=True)
            failpoint("checkpoint.removed")

    def trim(self, oldest: int) -> None:
        """Remove the oldest files whose documents all have a sequence below ``oldest``. The newest closed file stays."""
        with self._lock:
            last = max(0, len(self._closed) - 1)  # only the newest file may show the next sequence
            count = next((place for place in range(last) if self._closed[place].newest >= oldest), last)
            removed, self._closed = self._closed[:count], self._closed[count:]
        for file in removed:
            file.path.unlink(missing_ok=True)
            fsync_directory(self._folder)  # a later file may remove documents of this one, so it must not vanish first
            failpoint("trim.removed")

    def close(self) -> None:
        """Sync and close the file. Later calls raise Unavailable."""
        if self._thread is not None:
            self._thread.close()
        try:
            self.sync()
        finally:
            with self._sync_lock, self._lock:
                if self._descriptor is not None:
                    os.close(self._descriptor)
                    self._closed.append(self._current())
                self._descriptor = None
                self.failure = self.failure or f"the log {self._folder} is closed; open the store again"

    def fail(self, reason: str) -> None:
        """Refuse all further changes, because of ``reason``."""
        path = log_path(self._folder, self._number)
        self.failure = f"{path}: {reason}; check the disk, and open the store again"

    def _current(self) -> LogFile:
        return LogFile(log_path(self._folder, self._number), self._number, self._size, self._newest, self._last)

    def _require(self) -> int:
        if self.failure is not None or self._descriptor is None:
            raise Unavailable(self.failure or f"the log {self._folder} is closed; open the store again")
        return self._descriptor

    def _cut(self, descriptor: int, size: int) -> None:
        """Cut the file to ``size`` bytes. If that fails, the log takes no more changes."""
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            self.fail(f"a record that could not be written cannot be removed ({error.strerror})")

    def _fsync(self, descriptor: int) -> None:
        try:
            os.fdatasync(descriptor)
        except OSError as error:  # the system may have dropped the pages, so a second sync proves nothing
            self.fail(f"it cannot be synced ({error.strerror}), and the last changes may be lost")
            raise Unavailable(str(self.failure)) from error

    def _sync_regularly(self) -> None:
        with suppress(SuffolkError):  # the next change raises the failure
            self.sync()


def _chained(bodies: Iterable[bytes], salt: int) -> Iterator[bytes]:
    """The records of a file."""
    last = salt
    for body in bodies:
        record = frame(body, salt, last)
        last = checksum_of(record)
        yield record
