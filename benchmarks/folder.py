"""Folders for what a measurement writes."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from suffolk.datastore.errors import ResourceExhausted


def make_folder(path: Path) -> Path:
    """Make ``path`` and the folders above it; it.

    Raises:
        ResourceExhausted: it cannot be made.
    """
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def new_folder(within: Path) -> Iterator[Path]:
    """A new folder in ``within``, which is made if need be; the new one is removed at the end, after an error too.

    Raises:
        ResourceExhausted: it cannot be made.
    """
    with writing(within):
        within.mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(prefix="suffolk-", dir=within)
    with made as name:
        yield Path(name)


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name beside ``path`` to write to, which becomes ``path`` at the end: what was cut off never stands there, and what stood
    there is lost only to what is whole.

    Raises:
        ResourceExhausted: it cannot be written.
    """
    target = path.resolve()  # a link stays one
    unfinished = target.with_name(f"{target.name}.unfinished")
    with writing(path):
        if target.exists() and not target.is_file():  # a terminal or the like, which nothing can take the place of
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
    """Turn the system's refusal to write into ResourceExhausted."""
    try:
        yield
    except OSError as error:
        raise ResourceExhausted(f"{path} cannot be written: {error.strerror}; choose another place") from error
