"""Files that a command writes at its end, checked at its start."""

from __future__ import annotations

from pathlib import Path

from datastore.errors import NotFound


def require_folder(option: str, file: Path | None) -> None:
    """Nothing, if ``file`` is None or its folder is there; else raises NotFound, which names the ``option``."""
    if file is not None and not file.absolute().parent.is_dir():
        raise NotFound(f"{option} {file}: there is no such folder; name a file in a folder that exists")
