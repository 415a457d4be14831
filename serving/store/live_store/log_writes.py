"""Writes of files of the write-ahead log. What cannot be written raises an error that says what to do."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from suffolk.datastore.errors import PermissionDenied, ResourceExhausted, SuffolkError
from suffolk.datastore.files import fsync_directory

OWNER_ONLY = 0o600
"""Mode of log files: they hold text that was appended, also by tenants that others may not read."""


def create_file(path: Path, content: bytes) -> int:
    """A new file with ``content``, synced with its name; returns its descriptor, which appends. A failed file is removed.

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
    """Write and sync a file; returns its size. A failed file is removed. Raises as ``create_file``."""
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
