"""Reads and writes calibrations as JSON. The file has the non-zero cells of each calibrator."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore.checks import check_choice, listed, number, text, whole_within
from suffolk.datastore.errors import Corruption, InvalidArgument, Unsupported
from suffolk.datastore.files import write_atomically
from suffolk.datastore.settings import read_object
from suffolk.serving.decoding.drafters.calibration.calibration import NETWORK, TEXT, Calibration, Learned, Learner
from suffolk.serving.decoding.drafters.calibration.calibrator import Calibrator, Prior
from suffolk.serving.decoding.drafters.calibration.confidence import Confidence

VERSION = 2
# Calibrators that only check a state, so their prior has no effect: a state does not include it.
_LEARNERS: dict[str, Callable[[], Learner]] = {
    TEXT: partial(Calibrator, Prior(0.0, 0.0, 0.0, 0.0, 0.0)),
    NETWORK: Confidence,
}


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Replace the file at ``path`` atomically. Raises the errors of ``write_atomically``."""
    learned = [
        asdict(each) | {"state": _sparse(each.state), "reliability": each.reliability.tolist()}
        for each in calibration.learned()
    ]
    content = {"suffolk": "calibration", "version": VERSION, "learned": learned}
    write_atomically(path, (json.dumps(content) + "\n").encode(), is_shared=True)


def read_calibration(path: Path) -> Calibration:
    """Read a file of ``write_calibration``.

    Raises:
        NotFound: the file cannot be read.
        Corruption: the file is damaged, or not a calibration.
        Unsupported: the file has another version.
    """
    content = read_object(path, f"calibration {path}", "name a file that --calibration wrote")
    if content.get("suffolk") != "calibration":
        raise Corruption(f"{path} is not a calibration; name a file that --calibration wrote")
    if content.get("version") != VERSION:
        raise Unsupported(
            f"calibration {path} has version {content.get('version')!r}, this program reads {VERSION}; remove it to begin anew"
        )
    try:
        return Calibration(_learned(content.get("learned")))
    except InvalidArgument as error:
        raise Corruption(f"calibration {path} is damaged: {error}; remove it to begin anew") from error


def _learned(entries: object) -> list[Learned]:
    learned = [_read(each) for each in listed("learned", entries, "objects")]
    names = [(each.kind, each.source) for each in learned]
    if twice := [source for kind, source in names if names.count((kind, source)) > 1]:
        raise InvalidArgument(f"source {twice[0]} occurs twice")
    return learned


def _read(entry: object) -> Learned:
    if not isinstance(entry, dict):
        raise InvalidArgument(f"learned has {entry!r:.40}, which is no object")
    source, kind = (text(key, entry.get(key)) for key in ("source", "kind"))
    check_choice(f"kind of {source}", kind, _LEARNERS)
    learner = _LEARNERS[kind]()
    state = _dense(source, entry.get("state"), len(learner.state()))
    learner.restore(state)
    diagram = np.array(
        [number("reliability", each) for each in listed("reliability", entry.get("reliability"), "numbers")]
    )
    learner.reliability.restore(diagram)
    return Learned(source, kind, state, diagram)


def _sparse(state: npt.NDArray[np.float64]) -> dict[str, Any]:
    cells = np.flatnonzero(state)
    return {"cells": cells.tolist(), "values": state[cells].tolist()}


def _dense(source: str, state: object, size: int) -> npt.NDArray[np.float64]:
    if not isinstance(state, dict):
        raise InvalidArgument(f"state of {source} is no object")
    cells = [whole_within("cells", cell, 0, size - 1) for cell in listed("cells", state.get("cells"), "numbers")]
    values = [number("values", value) for value in listed("values", state.get("values"), "numbers")]
    if len(cells) != len(values) or len(set(cells)) != len(cells):
        raise InvalidArgument(
            f"state of {source} has {len(values)} values for {len(set(cells))} different cells of {len(cells)}"
        )
    found = np.zeros(size, np.float64)
    found[cells] = values
    return found
