"""Folders for what a measurement writes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from datastore.errors import ResourceExhausted


def make_folder(path: Path) -> Path:
    """Make ``path`` and the folders above it; it.

    Raises:
        ResourceExhausted: it cannot be made.
    """
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns the system's refusal to write into ResourceExhausted."""
    try:
        yield
    except OSError as error:
        raise ResourceExhausted(f"{path} cannot be written: {error.strerror}; choose another place") from error
