"""Paths as users write them."""

from __future__ import annotations

from pathlib import Path

from suffolk.datastore.errors import NotFound


def name_text(name: str) -> str:
    """``name`` as a text that can be stored: bytes of a path that are no UTF-8 become ``\\xNN``, in every locale."""
    if name.isascii():
        return name
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON allows
        return name.encode("utf-8", "replace").decode()


def expand(path: str | Path) -> Path:
    """``path`` with the home folder in place of ``~`` or ``~user``. Raises NotFound if no home folder is known."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise NotFound(f"{path}: no home folder is known for {Path(path).parts[0]}; write the whole path") from error
