"""Paths as users write them."""

from __future__ import annotations

import os
from pathlib import Path

from suffolk.datastore.errors import InvalidArgument, NotFound


def name_text(name: str) -> str:
    """``name`` as a text that can be stored: bytes of a path that are no UTF-8 become ``\\xNN``, in every locale."""
    if name.isascii():
        return name
    try:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON allows
        return name.encode("utf-8", "replace").decode()


def refuse_dangling(path: Path) -> None:
    """Refuse an output that is, or lies in, a link to nothing. Raises InvalidArgument."""
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
