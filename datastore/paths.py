"""Paths as users write them."""

from __future__ import annotations

from pathlib import Path

from suffolk.datastore.errors import NotFound


def expand(path: str | Path) -> Path:
    """``path`` with the home folder in place of ``~`` or ``~user``. Raises NotFound if no home folder is known."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise NotFound(f"{path}: no home folder is known for {Path(path).parts[0]}; write the whole path") from error
