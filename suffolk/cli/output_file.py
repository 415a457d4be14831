"""Checks at a command's start the files that it writes at its end."""

from __future__ import annotations

import os
from pathlib import Path

from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied
from suffolk.datastore.files import is_device, refuse_dangling


def require_folder(option: str, file: Path | None) -> None:
    """Check that ``file``, if there is one, can be written.

    Raises:
        NotFound, InvalidArgument, PermissionDenied: it cannot be written. Messages name the ``option``.
    """
    if file is None or is_device(file):
        return
    refuse_dangling(file.parent)
    if file.is_dir():
        raise InvalidArgument(f"{option} {file} is a folder; name a file")
    folder = file.absolute().parent
    if not folder.is_dir():
        raise NotFound(f"{option} {file}: there is no such folder; name a file in a folder that exists")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionDenied(f"{option} {file}: cannot be written; name a file in a folder of yours")


def plot_beside(json_file: Path, plot: Path | None) -> Path:
    """The file of a measurement's plot. Checks that both files can be written.

    It is ``plot`` if given, else a file beside ``json_file``.

    Raises:
        InvalidArgument: both are one file, or ``json_file`` is a device and there is no ``plot``.
        NotFound, PermissionDenied: as ``require_folder``.
    """
    require_folder("--json", json_file)
    if plot is None and is_device(json_file):
        raise InvalidArgument(f"--json {json_file} is no file; name one for the plot with --plot")
    found = plot or json_file.with_suffix(".png")
    require_folder("--plot", found)
    if found.resolve() == json_file.resolve():
        raise InvalidArgument(f"--json and the plot are one file, {found}; name another with --plot")
    return found


def require_page(page: Path | None, *others: Path) -> None:
    """Check that ``--report`` can be written and is none of the ``others``.

    Raises:
        InvalidArgument: it is one of them.
        NotFound, InvalidArgument, PermissionDenied: as ``require_folder``.
    """
    require_folder("--report", page)
    if page is not None and page.resolve() in {each.resolve() for each in others}:
        raise InvalidArgument(f"--report {page} is also the file of other results; name another")
