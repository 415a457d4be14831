"""Files that a command writes at its end, checked at its start."""

from __future__ import annotations

from pathlib import Path

from datastore.errors import InvalidArgument, NotFound


def require_folder(option: str, file: Path | None) -> None:
    """Nothing, if ``file`` is None, or can be a file in a folder that is there.

    Raises:
        NotFound, InvalidArgument: there is no such folder, or it is a folder itself; both name the ``option``.
    """
    if file is None:
        return
    if file.is_dir():
        raise InvalidArgument(f"{option} {file} is a folder; name a file")
    if not file.absolute().parent.is_dir():
        raise NotFound(f"{option} {file}: there is no such folder; name a file in a folder that exists")
