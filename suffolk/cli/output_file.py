"""Files that a command writes at its end, checked at its start."""

from __future__ import annotations

import json
import os
from pathlib import Path

from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied
from suffolk.datastore.manifest import write_atomically


def require_folder(option: str, file: Path | None) -> None:
    """Nothing, if ``file`` is None, or can be a file in a folder that is there and may be written to.

    Raises:
        NotFound, InvalidArgument, PermissionDenied: it cannot; all name the ``option``.
    """
    if file is None or _is_device(file):
        return
    if file.is_dir():
        raise InvalidArgument(f"{option} {file} is a folder; name a file")
    folder = file.absolute().parent
    if not folder.is_dir():
        raise NotFound(f"{option} {file}: there is no such folder; name a file in a folder that exists")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionDenied(f"{option} {file}: cannot be written; name a file in a folder of yours")


def plot_beside(json_file: Path, plot: Path | None) -> Path:
    """Where the plot of a measurement goes: ``plot``, or else beside ``json_file``; both can be written.

    Raises:
        InvalidArgument: they are one file, or ``json_file`` is none that a plot could stand beside.
        NotFound, PermissionDenied: as ``require_folder``.
    """
    require_folder("--json", json_file)
    if plot is None and _is_device(json_file):
        raise InvalidArgument(f"--json {json_file} is no file; name one for the plot with --plot")
    found = plot or json_file.with_suffix(".png")
    require_folder("--plot", found)
    if found.resolve() == json_file.resolve():
        raise InvalidArgument(f"--json and the plot are one file, {found}; name another with --plot")
    return found


def write_json(file: Path, document: object) -> None:
    """Write ``document`` as JSON, whole or not at all; what a link leads to is replaced, not the link. Raises as
    ``write_atomically``."""
    content = json.dumps(document, indent=2) + "\n"
    if _is_device(file):
        file.write_text(content)
    else:
        write_atomically(file.resolve(), content.encode())


def _is_device(file: Path) -> bool:
    """Whether it is a terminal, a pipe or the like, which nothing can take the place of."""
    return file.exists() and not file.is_file() and not file.is_dir()
