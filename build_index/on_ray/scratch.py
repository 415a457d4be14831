"""Temporary folders of tasks. The next build removes the folders of killed tasks."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from suffolk.datastore.errors import PermissionDenied


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder, which is removed at the end. It is locked, so that ``remove_stale`` leaves it alone."""
    with _locked(_base()):
        folder = Path(tempfile.mkdtemp(dir=_base()))
        held = _open_locked(folder, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def remove_stale() -> Path:
    """Remove the folders of killed tasks. Returns the folder in which they were."""
    with _locked(_base()):
        for folder in _base().iterdir():
            if folder.is_symlink() or not folder.is_dir():
                continue  # no task made it
            try:
                held = _open_locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # its task runs
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)
    return _base()


def _base() -> Path:
    """The folder of all tasks of this user. Raises PermissionDenied: other users can change it."""
    folder = Path(tempfile.gettempdir(), f"suffolk-build-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionDenied(
            f"{folder} must be a folder of user {os.getuid()} with mode 700, and no link; "
            "remove it, or set TMPDIR to another folder"
        )
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    held = _open_locked(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(held)


def _open_locked(folder: Path, kind: int) -> int:
    """Lock a folder until the returned descriptor is closed. The system does that when the process ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, kind)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor
