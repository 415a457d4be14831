"""Reads a write-ahead log: after a crash, or while another process appends to it."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from suffolk.datastore.errors import Corruption, damaged
from suffolk.serving.store.live_store.log_file import (
    CHECKPOINT_SUFFIX,
    HEADER_BYTES,
    LOG_SUFFIX,
    Header,
    LogFile,
    file_number,
    log_path,
    read_header,
)
from suffolk.serving.store.live_store.record import Change, decode, find


@dataclass(frozen=True, slots=True)
class TornTail:
    """The end of the last file if it is not a whole record: a crash left it, or a process is writing it."""

    path: Path
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """The content of a log folder.

    Attributes:
        files: the files that hold changes, in order; the first may be a checkpoint.
        changes_of: the changes of each file, in order. Their arrays are views of the files' bytes.
        leftovers: files that a crash left, without content or replaced by a checkpoint; they can be removed.
        torn: the unfinished end of the last file, or None.
    """

    files: Sequence[LogFile]
    changes_of: Sequence[Sequence[Change]]
    leftovers: Sequence[Path]
    torn: TornTail | None

    @property
    def changes(self) -> list[Change]:
        """All changes, in order."""
        return list(chain.from_iterable(self.changes_of))


def read_log(folder: Path) -> RecoveredLog:
    """Read all changes in ``folder``. Nothing is written.

    Raises:
        Corruption: a record or a file is missing, doubled, or replaced by another. Or a file is damaged, unless the damage
            lies after the last whole record of the last file.
        Unsupported: another version wrote a file.
    """
    paths, leftovers = _live_paths(folder)
    contents = [_content(path, path == paths[-1] and path.suffix == LOG_SUFFIX) for path in paths]
    headers = [read_header(path, content) for path, content in zip(paths, contents, strict=True)]
    files, changes_of, torn = [], [], None
    for path, content, header, after in zip(paths, contents, headers, [*headers[1:], None], strict=False):
        found, size, last = _records(path, content, header)
        replaces = path.suffix == CHECKPOINT_SUFFIX  # the next file refers to the file that the checkpoint replaces
        expected = len(content) if replaces else after.previous if after is not None else None
        if expected is None and len(content) > size:
            torn = _torn_tail(path, content, size, header.salt)
        if expected is not None and size < expected:
            raise damaged(path, f"holds no whole record at byte {size}, and should hold records up to byte {expected}")
        if after is not None and not replaces and after.before != last:
            raise damaged(path, "is not the file that the next one follows")
        newest = max((int(change.sequences[-1]) for change in found if len(change.sequences)), default=0)
        files.append(LogFile(path, file_number(path), size, newest, last))
        changes_of.append(found)
    return RecoveredLog(files, changes_of, leftovers, torn)


def read_shared_log(folder: Path) -> RecoveredLog:
    """The same as ``read_log``, while another process may append to the log, and replace and remove files."""
    before = ""
    while True:
        try:
            return read_log(folder)
        except (Corruption, FileNotFoundError) as error:  # a second read meets damage again, but no replaced file
            if str(error) == before:
                raise
            before = str(error)


def _live_paths(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files that hold the state, in order, and the leftovers (``RecoveredLog``)."""
    logs = sorted(folder.glob(f"*{LOG_SUFFIX}"))  # listed before the checkpoints that replace them
    checkpoints = sorted(folder.glob(f"*{CHECKPOINT_SUFFIX}"))
    through = file_number(checkpoints[-1]) if checkpoints else 0
    live = checkpoints[-1:] + [path for path in logs if file_number(path) > through]
    if live and live[-1].suffix == LOG_SUFFIX and live[-1].stat().st_size < HEADER_BYTES:
        live.pop()  # a record is written only after the header is on disk
    numbers = [file_number(path) for path in live]
    for before, after in zip(numbers, numbers[1:], strict=False):
        if after != before + 1:
            raise damaged(log_path(folder, before + 1), "is missing")
    return live, sorted({*logs, *checkpoints, *folder.glob("*.tmp")} - set(live))


def _content(path: Path, grows: bool) -> memoryview:
    """The bytes of a file. They are copied if the file may still change: it may become shorter when a write fails."""
    with open(path, "rb") as file:
        if grows or not path.stat().st_size:
            return memoryview(file.read())
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _records(path: Path, content: memoryview, header: Header) -> tuple[list[Change], int, int]:
    """The changes of all whole records at the start, the place of the first byte after them, and the last record's checksum."""
    found, place, last = [], HEADER_BYTES, header.salt
    while (record := decode(content[place:], header.salt)) is not None:
        if record.before != last:
            raise damaged(path, f"has a record at byte {place} that does not follow the one before it")
        found.append(record.change)
        place, last = place + record.bytes, record.checksum
    return found, place, last


def _torn_tail(path: Path, content: memoryview, size: int, salt: int) -> TornTail:
    """The end of the last file after ``size`` good bytes. A crash leaves no whole record there."""
    tail = content[size:]
    if (after := find(tail, salt)) is not None:
        raise Corruption(
            f"{path} is damaged at byte {size}: a whole change follows at byte {size + after}; restore the file from a copy, "
            f"or give up all changes from there on with 'truncate -s {size} {path}'"
        )
    return TornTail(path, size, len(tail))
