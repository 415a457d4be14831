"""Creates folders and files of results."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from suffolk.datastore.errors import ResourceExhausted


def make_folder(path: Path) -> Path:
    """Create ``path`` and the folders above it; returns ``path``.

    Raises:
        ResourceExhausted: the folder cannot be created.
    """
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def new_folder(within: Path) -> Iterator[Path]:
    """A new folder in ``within``, removed at the end, also after an error. ``within`` is created if it is missing.

    Raises:
        ResourceExhausted: the folder cannot be created.
    """
    with writing(within):
        within.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix="suffolk-", dir=within)
    with made as name:
        yield Path(name)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``. At the end that file replaces ``path``.

    An interrupted write leaves ``path`` unchanged.

    Raises:
        ResourceExhausted: the file cannot be written.
    """
    target = path.resolve()  # replace the target of a link, not the link
    unfinished = target.with_name(f"{target.name}.unfinished")
    with writing(path):
        if target.exists() and not target.is_file():  # a terminal or pipe cannot be replaced
            yield target
            return
        try:
            yield unfinished
            unfinished.replace(target)
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink()


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` of a write into ResourceExhausted."""
    try:
        yield
    except OSError as error:
        raise ResourceExhausted(f"{path} cannot be written: {error.strerror}; choose another place") from error
