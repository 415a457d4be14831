"""Files of the write-ahead log: names, headers, and reading them after a crash.

The log is a folder of files ``NUMBER.log``, in rising order without gaps. ``NUMBER.checkpoint`` replaces all files up to that
number. A header states how many bytes of the file before it are good, so a torn tail is cut off without a write.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import Corruption, Unsupported, damaged
from suffolk.serving.live_store.record import Change, decode, find

LOG_SUFFIX = ".log"
CHECKPOINT_SUFFIX = ".checkpoint"
MAGIC = b"\x89SFL\r\n\x1a\n"
VERSION = 1
_HEADER = struct.Struct("<8sIQI")
"""Magic, version, good bytes of the file before, and the CRC-32 of these three."""
HEADER_BYTES = _HEADER.size


@dataclass(frozen=True, slots=True)
class TornTail:
    """The end of the last file that a crash left unfinished: it holds no whole record."""

    path: Path
    offset: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file that was read.

    Attributes:
        size: good bytes.
        newest: the highest sequence of a document in it; 0 if it has none.
    """

    path: Path
    number: int
    size: int
    newest: int


@dataclass(frozen=True, slots=True)
class RecoveredLog:
    """The content of a log folder.

    Attributes:
        changes: all changes, in order. Their arrays are views of the mapped files.
        files: the files that hold them, in order; the first may be a checkpoint.
        leftovers: files that a crash left, and that hold nothing; they can be removed.
        torn: the unfinished end of the last file, or None.
    """

    changes: Sequence[Change]
    files: Sequence[LogFile]
    leftovers: Sequence[Path]
    torn: TornTail | None


def header(previous_bytes: int) -> bytes:
    """The header of a file whose predecessor has ``previous_bytes`` good bytes."""
    fields = _HEADER.pack(MAGIC, VERSION, previous_bytes, 0)[:-4]
    return fields + zlib.crc32(fields).to_bytes(4, "little")


def log_path(folder: Path, number: int) -> Path:
    """The path of log file ``number``."""
    return folder / f"{number:012d}{LOG_SUFFIX}"


def checkpoint_path(folder: Path, number: int) -> Path:
    """The path of the checkpoint that replaces all files up to ``number``."""
    return folder / f"{number:012d}{CHECKPOINT_SUFFIX}"


def file_number(path: Path) -> int:
    """The number in the name of a log file or checkpoint."""
    return int(path.name.partition(".")[0])


def read_log(folder: Path) -> RecoveredLog:
    """Read all changes in ``folder``. Nothing is written.

    Raises:
        Corruption: a file is missing, or damaged elsewhere than at the end of the last one: before a whole record.
        Unsupported: a newer version wrote a file.
    """
    paths, leftovers = _live_paths(folder)
    changes: list[Change] = []
    files: list[LogFile] = []
    torn = None
    limits = [*(_read_header(path) for path in paths[1:]), None]
    for path, limit in zip(paths, limits, strict=False):
        _read_header(path)
        found, size = _read_records(path)
        changes += found
        last = limit is None and path.suffix == LOG_SUFFIX
        whole = path.stat().st_size if path.suffix == CHECKPOINT_SUFFIX else limit
        expected = size if whole is None else whole
        if size < expected:
            raise damaged(path, f"holds no whole record at byte {size}, and should hold records up to byte {expected}")
        if last and path.stat().st_size > size:
            torn = _torn_tail(path, size)
        newest = max((int(change.sequences[-1]) for change in found if len(change.sequences)), default=0)
        files.append(LogFile(path, file_number(path), size, newest))
    return RecoveredLog(changes, files, leftovers, torn)


def _torn_tail(path: Path, size: int) -> TornTail:
    """The end of the last file after ``size`` good bytes. A crash leaves no whole record there."""
    tail = memoryview(path.read_bytes())[size:]
    if (after := find(tail)) is not None:
        raise Corruption(
            f"{path} is damaged at byte {size}: a whole change follows at byte {size + after}; restore the file from a copy, "
            f"or give up all changes from there on with 'truncate -s {size} {path}'"
        )
    return TornTail(path, size, len(tail))


def _live_paths(folder: Path) -> tuple[list[Path], list[Path]]:
    """The files that hold the state, in order, and the files that hold nothing."""
    logs = sorted(folder.glob(f"*{LOG_SUFFIX}"))
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


def _read_header(path: Path) -> int:
    """The good bytes of the file before ``path``."""
    with open(path, "rb") as file:
        raw = file.read(HEADER_BYTES)
    if len(raw) < HEADER_BYTES or not raw.startswith(MAGIC):
        raise Corruption(f"{path} is no file of a write-ahead log; restore it from a copy")
    _, version, previous, checksum = _HEADER.unpack(raw)
    if zlib.crc32(raw[:-4]) != checksum:
        raise damaged(path, "has a damaged header")
    if version != VERSION:
        raise Unsupported(f"{path}: log version {version}; this program reads version {VERSION}: use a newer Suffolk")
    return int(previous)


def _read_records(path: Path) -> tuple[list[Change], int]:
    """The changes up to the first byte that begins no whole record, and the offset of that byte."""
    with open(path, "rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    found, place = [], HEADER_BYTES
    for change, size in _records(data):
        found.append(change)
        place += size
    return found, place


def _records(data: memoryview) -> Iterator[tuple[Change, int]]:
    place = HEADER_BYTES
    while (record := decode(data[place:])) is not None:
        yield record
        place += record[1]
