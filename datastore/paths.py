"""Paths as users write them."""

from __future__ import annotations

from pathlib import Path

from suffolk.datastore.errors import NotFound


def expand(path: str | Path) -> Path:
    """``path`` with a home folder in place of ``~`` or ``~user``. Raises NotFound: there is no such user, or no home folder."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise NotFound(f"{path}: no home folder is known for {Path(path).parts[0]}; write the whole path") from error
