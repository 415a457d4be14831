"""Adds a head's folder to error messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from suffolk.datastore.errors import SuffolkError


@contextmanager
def naming(folder: Path) -> Iterator[None]:
    """Prefix errors raised in the block with ``folder``, unless they name it."""
    try:
        yield
    except SuffolkError as error:
        if str(folder) in str(error):
            raise
        raise type(error)(f"head {folder}: {error}") from error
