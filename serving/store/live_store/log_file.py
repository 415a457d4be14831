"""Files of the write-ahead log: their names, headers and writes.

The log is a folder of files ``NUMBER.log``, in rising order without gaps. ``NUMBER.checkpoint`` replaces all files up to that
number. A header states how many bytes of the file before it are good, so an incomplete record at the end of that file is left out
without a write. It also has the checksum of the last record in that file, so a reader notices if a file is replaced by another.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import Corruption, PermissionDenied, ResourceExhausted, SuffolkError, Unsupported, damaged
from suffolk.datastore.files import fsync_directory
from suffolk.serving.store.live_store.record import VERSION

LOG_SUFFIX = ".log"
CHECKPOINT_SUFFIX = ".checkpoint"
MAGIC = b"\x89SFL\r\n\x1a\n"
_HEADER = struct.Struct("<8sIQIII")
"""Magic, version, good bytes of the previous file, salt of this file's records, checksum of the previous file's last
record, and the CRC-32 of all these."""
HEADER_BYTES = _HEADER.size
OWNER_ONLY = 0o600
"""Mode of log files. They hold appended text, also of tenants that others may not read."""


@dataclass(frozen=True, slots=True)
class Header:
    """The fields of a file's header.

    Attributes:
        previous: good bytes of the previous file.
        before: checksum of the previous file's last record.
        salt: of this file's records.
    """

    previous: int
    before: int
    salt: int


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
    """The header of a file. ``previous_bytes``: good bytes of the previous file. ``before``: checksum of its last
    record."""
    fields = _HEADER.pack(MAGIC, VERSION, previous_bytes, salt, before, 0)[:-4]
    return fields + zlib.crc32(fields).to_bytes(4, "little")


def read_header(path: Path, content: memoryview) -> Header:
    """The header of the file ``path`` with these bytes.

    Raises:
        Corruption: the header is damaged.
        Unsupported: another version wrote it.
    """
    raw = bytes(content[:HEADER_BYTES])
    if not raw.startswith(MAGIC):
        raise Corruption(f"{path} is no file of a write-ahead log; restore it from a copy")
    version = int.from_bytes(raw[len(MAGIC) : len(MAGIC) + 4], "little")
    if (
        version != VERSION and len(raw) == HEADER_BYTES
    ):  # before the checksum, because another version's header may be longer
        raise Unsupported(
            f"{path}: log version {version}; this program reads {VERSION}: use the Suffolk that wrote it, or restore it from a copy"
        )
    if len(raw) < HEADER_BYTES or zlib.crc32(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        raise damaged(path, "has a damaged header")
    _, _, previous, salt, before, _ = _HEADER.unpack(raw)
    return Header(previous, before, salt)


def log_path(folder: Path, number: int) -> Path:
    """The path of log file ``number``."""
    return folder / f"{number:012d}{LOG_SUFFIX}"


def checkpoint_path(folder: Path, number: int) -> Path:
    """The path of the checkpoint that replaces all files up to ``number``."""
    return folder / f"{number:012d}{CHECKPOINT_SUFFIX}"


def file_number(path: Path) -> int:
    """The number in the name of a log file or checkpoint."""
    return int(path.name.partition(".")[0])


def create_file(path: Path, content: bytes) -> int:
    """Make a file with ``content``, and sync the file and its name. Returns a descriptor that appends. A failed file is
    removed.

    Raises:
        ResourceExhausted, PermissionDenied: it cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, OWNER_ONLY)
    except OSError as error:
        raise refused(path, error) from error
    try:
        write_all(descriptor, content)
        os.fsync(descriptor)
        fsync_directory(path.parent)
    except (OSError, SuffolkError) as error:
        os.close(descriptor)
        path.unlink(missing_ok=True)
        raise (refused(path, error) if isinstance(error, OSError) else error) from error
    return descriptor


def write_file(path: Path, parts: Iterable[bytes]) -> int:
    """Write and sync a file; returns its size. A failed file is removed. Raises the errors of ``create_file``."""
    size = 0
    try:
        with open(path, "wb", opener=lambda name, flags: os.open(name, flags, OWNER_ONLY)) as file:
            for part in parts:
                size += file.write(part)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise refused(path, error) from error
        raise
    return size


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of ``content``. Raises OSError; a part may be written then."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def refused(path: Path, error: OSError) -> SuffolkError:
    """The error for a ``path`` that cannot be written."""
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return PermissionDenied(f"{path} cannot be written ({error.strerror}); check the permissions of its folder")
    return ResourceExhausted(
        f"{path} cannot be written ({error.strerror}): the change is refused, and reads go on; free disk space"
    )
