"""Helpers for files: paths from users, names that are safe to print, and files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
from pathlib import Path

from suffolk.datastore.errors import (
    Field,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)
from suffolk.datastore.failpoints import failpoint


def write_json(file: Path, document: object) -> None:
    """Write ``document`` as JSON. Raises the errors of ``write_text``."""
    write_text(file, json.dumps(document, indent=2) + "\n")


def write_text(file: Path, content: str) -> None:
    """Write ``content`` as UTF-8. Raises the errors of ``write_bytes``."""
    write_bytes(file, content.encode())


def write_bytes(file: Path, content: bytes) -> None:
    """Write ``content``, whole or not at all. A link is followed: its target is replaced.

    Raises:
        PermissionDenied, ResourceExhausted: as ``write_atomically``.
    """
    if is_device(file):
        file.write_bytes(content)
    else:
        write_atomically(file.resolve(), content, is_shared=True)


def read_bounded(path: str | Path, most: int = 1 << 26) -> bytes:
    """The content of a file of at most ``most`` bytes, for example a file of settings.

    Raises OSError if the file cannot be read, is larger, or is a device or pipe, which may never end. A shell's pipes (/dev/stdin
    and <(...)) are read.
    """
    if is_device(Path(path)) and not str(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/")):
        raise OSError(errno.EINVAL, "it is a device or pipe, and no file")
    with open(path, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes")
    return content


def file_version(file: Path | None) -> tuple[int, ...] | None:
    """A value that changes when ``file`` is replaced or written; None without a file."""
    if file is None:
        return None
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def is_device(file: Path) -> bool:
    """Whether ``file`` is a terminal, pipe or other device. A file must not be put in its place."""
    return file.exists() and not file.is_file() and not file.is_dir()


def name_text(name: str) -> str:
    """``name`` as a text that can be stored. Bytes of a path that are not UTF-8 become ``\\xNN``, in every locale."""
    if name.isascii():
        return name
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON allows
        return name.encode("utf-8", "replace").decode()


def require_place_here(path: str | Path, name: str) -> None:
    """Raise InvalidArgument if the path of something to make is a URL: a folder with an odd name would be made."""
    if "://" in str(path):
        raise InvalidArgument(Field(name), f" is {str(path)!r}, a URL; name a place on this machine")


def refuse_dangling(path: Path) -> None:
    """Raise InvalidArgument if the output is a dangling link, or lies in one."""
    for link in (path, *path.parents):
        if link.is_symlink() and not link.exists():
            raise InvalidArgument(
                f"output {path}: {link} is a link to {os.readlink(link)}, which does not exist; make that, or name another output"
            )


def expand(path: str | Path) -> Path:
    """``path`` with the home folder in place of ``~`` or ``~user``. Raises NotFound if no home folder is known."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise NotFound(f"{path}: no home folder is known for {Path(path).parts[0]}; write the whole path") from error


def printable(name: str) -> str:
    """``name`` with each unprintable character escaped, because control characters change the terminal's state."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in name)


def write_atomically(path: Path, content: bytes, is_shared: bool = False) -> None:
    """Replace ``path`` by ``content`` so that a crash leaves the old file or the new one. Ctrl-C leaves no temporary file.

    Args:
        is_shared: whether several processes may write ``path`` at the same time. The last of them wins.

    Raises:
        ResourceExhausted: the disk is full, or the directory entry of the new file cannot be synced.
        PermissionDenied: the folder cannot be written to.
    """
    own = f".{secrets.token_hex(4)}" if is_shared else ""
    temporary = path.with_name(f"{path.name}{own}.tmp")
    try:
        with open(temporary, "wb") as file:
            failpoint(f"{path.name}.created")
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        failpoint(f"{path.name}.written")
        os.replace(temporary, path)
        failpoint(f"{path.name}.renamed")
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise PermissionDenied(f"{path} cannot be written: {error.strerror}; choose another folder") from error
        raise ResourceExhausted(
            f"{path} cannot be written: {error.strerror}; free disk space or choose another folder"
        ) from error
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Sync the directory entries of a folder to the disk.

    Raises:
        ResourceExhausted: the sync failed. A power cut may then restore the old entries.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ResourceExhausted(
            f"{path}: its names cannot be synced to the disk ({error.strerror}); check the disk, and run the command again"
        ) from error
