"""Checks at a command's start the files that it writes at its end: results, plots, recorded texts, learned acceptance."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from suffolk.cli.options.setting import Options
from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied
from suffolk.datastore.files import is_device, refuse_dangling
from suffolk.datastore.settings import option
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.calibration.calibration_file import read_calibration, write_calibration


def require_folder(option: str, file: Path | None) -> None:
    """Check that ``file``, if there is one, can be written.

    Raises:
        NotFound, InvalidArgument, PermissionDenied: the file cannot be written. Messages name the ``option``.
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
    """The file of a measurement's plot. Checks that the plot and ``json_file`` can be written.

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


RECORD = (
    "add a JSON line for every finished text, for 'suffolk replay'. It holds prompt and text as token ids, which anyone with the "
    "tokenizer can read"
)


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions(Options):
    """The file of learned acceptance."""

    GROUP = "drafting"
    calibration: Path | None = option(
        None,
        "file of how often drafts are accepted; it is read if it exists, and written at the end. Changes by "
        "other processes in between are lost; 'suffolk calibration FILE' shows it",
    )


@contextlib.contextmanager
def kept_calibration(path: Path | None) -> Iterator[Calibration]:
    """Yield the calibration in ``path``, or an empty one. If it has learned something, it is saved at the end, even after Ctrl-C
    or an error. Raises the errors of ``read_calibration`` and ``require_folder``."""
    require_folder("--calibration", path)
    if path is not None and path.exists() and not path.is_file():
        raise PermissionDenied(f"--calibration {path}: cannot be written; name a file in a folder of yours")
    calibration = read_calibration(path) if path is not None and path.exists() else Calibration()
    try:
        yield calibration
    finally:
        if path is not None and any(each.reliability.any() for each in calibration.learned()):
            write_calibration(path.resolve(), calibration)  # the file itself, not a link to it


def require_record(file: Path | None) -> None:
    """Check that ``file``, if there is one, can take recordings. Raises the errors of ``require_recordable``."""
    if file is not None:
        from suffolk.serving.decoding.replay.recorder import require_recordable

        require_recordable(file)
