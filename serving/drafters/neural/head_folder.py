"""Errors about a head, whoever finds them, name its folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from suffolk.datastore.errors import SuffolkError


@contextmanager
def naming(folder: Path) -> Iterator[None]:
    """Errors that leave the block begin with ``folder``, unless they name it already."""
    try:
        yield
    except SuffolkError as error:
        if str(folder) in str(error):
            raise
        raise type(error)(f"head {folder}: {error}") from error
