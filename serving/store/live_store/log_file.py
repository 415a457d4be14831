"""Files of the write-ahead log: their names and headers.

The log is a folder of files ``NUMBER.log``, in rising order without gaps. ``NUMBER.checkpoint`` replaces all files up to that
number. A header states how many bytes of the file before it are good, so a torn tail is cut off without a write. It also has the
checksum of the last record there, so no file can take the place of another one.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import Corruption, Unsupported, damaged
from suffolk.serving.store.live_store.record import VERSION, Layout

LOG_SUFFIX = ".log"
CHECKPOINT_SUFFIX = ".checkpoint"
MAGIC = b"\x89SFL\r\n\x1a\n"
_HEADER = struct.Struct("<8sIQIII")
"""Magic, version, good bytes of the file before, the salt of its records, the checksum of the last record before, and the CRC-32
of all these."""
HEADER_BYTES = _HEADER.size
_OLD_HEADERS = {1: struct.Struct("<8sIQI"), 2: struct.Struct("<8sIQII")}
"""Of version 1, without a salt, and of version 2, without the checksum of a record."""
LEAST_HEADER_BYTES = _OLD_HEADERS[1].size


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a file says.

    Attributes:
        previous: good bytes of the file before.
        before: checksum of the last record in that file; 0 in old versions.
        layout: of its records.
        bytes: size of the header.
    """

    previous: int
    before: int
    layout: Layout
    bytes: int


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file that does not change any more.

    Attributes:
        size: good bytes.
        newest: the highest sequence of a document in it; 0 if it has none.
        last: checksum of its last record; its salt if it has none.
    """

    path: Path
    number: int
    size: int
    newest: int
    last: int


def header(salt: int, previous_bytes: int = 0, before: int = 0) -> bytes:
    """The header of a file whose predecessor has ``previous_bytes`` good bytes, and ends with a record with checksum ``before``."""
    fields = _HEADER.pack(MAGIC, VERSION, previous_bytes, salt, before, 0)[:-4]
    return fields + zlib.crc32(fields).to_bytes(4, "little")


def read_header(path: Path, content: memoryview) -> Header:
    """The header of the file ``path`` with these bytes.

    Raises:
        Corruption: the header is damaged.
        Unsupported: a newer version wrote it.
    """
    raw = bytes(content[:HEADER_BYTES])
    if len(raw) < LEAST_HEADER_BYTES or not raw.startswith(MAGIC):
        raise Corruption(f"{path} is no file of a write-ahead log; restore it from a copy")
    version = int.from_bytes(raw[len(MAGIC) : len(MAGIC) + 4], "little")
    fields = _OLD_HEADERS.get(version, _HEADER)
    raw = raw[: fields.size]
    if len(raw) < fields.size or zlib.crc32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise damaged(path, "has a damaged header")
    if not 1 <= version <= VERSION:
        raise Unsupported(f"{path}: log version {version}; this program reads up to {VERSION}: use a newer Suffolk")
    _, _, previous, *more, _ = fields.unpack(raw)
    salt, before = (*more, 0, 0)[:2]
    return Header(previous, before, Layout(version, salt), fields.size)


def log_path(folder: Path, number: int) -> Path:
    """The path of log file ``number``."""
    return folder / f"{number:012d}{LOG_SUFFIX}"


def checkpoint_path(folder: Path, number: int) -> Path:
    """The path of the checkpoint that replaces all files up to ``number``."""
    return folder / f"{number:012d}{CHECKPOINT_SUFFIX}"


def file_number(path: Path) -> int:
    """The number in the name of a log file or checkpoint."""
    return int(path.name.partition(".")[0])
