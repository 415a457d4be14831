"""Files that a run writes besides its results: learned acceptance, and recorded texts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from suffolk.cli.options.setting import Options, option
from suffolk.cli.output_file import require_folder
from suffolk.datastore.errors import PermissionDenied

if TYPE_CHECKING:
    from suffolk.serving.decoding.drafters.calibration.calibration import Calibration

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
        "file of learned acceptance; it is read if it exists, and written at the end. Changes by "
        "other processes in between are lost; 'suffolk calibration FILE' shows it",
    )


@contextlib.contextmanager
def kept_calibration(path: Path | None) -> Iterator[Calibration]:
    """The calibration in ``path``, or an empty one; written back at the end, also after Ctrl-C. Raises as ``read_calibration``."""
    from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
    from suffolk.serving.decoding.drafters.calibration.calibration_file import read_calibration, write_calibration

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
    """Check that ``file``, if there is one, can take recordings. Raises as ``require_recordable``."""
    if file is not None:
        from suffolk.serving.decoding.replay.recorder import require_recordable

        require_recordable(file)
