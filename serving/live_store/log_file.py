"""Files of the write-ahead log: their names and headers.

The log is a folder of files ``NUMBER.log``, in rising order without gaps. ``NUMBER.checkpoint`` replaces all files up to that
number. A header states how many bytes of the file before it are good, so a torn tail is cut off without a write.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import Corruption, Unsupported, damaged

LOG_SUFFIX = ".log"
CHECKPOINT_SUFFIX = ".checkpoint"
MAGIC = b"\x89SFL\r\n\x1a\n"
VERSION = 2
_HEADER = struct.Struct("<8sIQII")
"""Magic, version, good bytes of the file before, the salt of its records, and the CRC-32 of these four."""
HEADER_BYTES = _HEADER.size
_OLD_HEADER = struct.Struct("<8sIQI")
"""Of version 1, without a salt."""
LEAST_HEADER_BYTES = _OLD_HEADER.size


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a file says.

    Attributes:
        previous: good bytes of the file before.
        salt: of the checksums of its records; None in version 1.
        bytes: size of the header.
    """

    previous: int
    salt: int | None
    bytes: int


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file that does not change any more.

    Attributes:
        size: good bytes.
        newest: the highest sequence of a document in it; 0 if it has none.
    """

    path: Path
    number: int
    size: int
    newest: int


def header(previous_bytes: int, salt: int) -> bytes:
    """The header of a file whose predecessor has ``previous_bytes`` good bytes."""
    fields = _HEADER.pack(MAGIC, VERSION, previous_bytes, salt, 0)[:-4]
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
    layout = _OLD_HEADER if version == 1 else _HEADER
    raw = raw[: layout.size]
    if len(raw) < layout.size or zlib.crc32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise damaged(path, "has a damaged header")
    if version not in (1, VERSION):
        raise Unsupported(f"{path}: log version {version}; this program reads up to {VERSION}: use a newer Suffolk")
    _, _, previous, *salt, _ = layout.unpack(raw)
    return Header(previous, salt[0] if salt else None, layout.size)


def log_path(folder: Path, number: int) -> Path:
    """The path of log file ``number``."""
    return folder / f"{number:012d}{LOG_SUFFIX}"


def checkpoint_path(folder: Path, number: int) -> Path:
    """The path of the checkpoint that replaces all files up to ``number``."""
    return folder / f"{number:012d}{CHECKPOINT_SUFFIX}"


def file_number(path: Path) -> int:
    """The number in the name of a log file or checkpoint."""
    return int(path.name.partition(".")[0])
