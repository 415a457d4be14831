"""Calibrations as files: JSON, of each learner the cells that are not empty."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from datastore.errors import Corruption, InvalidArgument, NotFound, Unsupported
from datastore.manifest import write_atomically
from serving.drafters.calibration.by_class import Learner
from serving.drafters.calibration.calibration import NETWORK, TEXT, Calibration, Learned
from serving.drafters.calibration.calibrator import Calibrator, Prior
from serving.drafters.calibration.confidence import Confidence
from serving.drafters.calibration.reliability import BINS, Reliability

VERSION = 1
_LEARNERS: dict[str, Callable[[], Learner]] = {
    TEXT: partial(Calibrator, Prior(0.0, 0.0, 0.0, 0.0, 0.0)),
    NETWORK: Confidence,
}


def write_calibration(path: Path, calibration: Calibration) -> None:
    """Put it in the place of what is at ``path``: whole or not at all. Raises as ``write_atomically``."""
    learned = [
        {
            "source": each.source,
            "class": each.request_class,
            "kind": each.kind,
            "state": _sparse(each.state),
            "reliability": each.reliability.tolist(),
        }
        for each in calibration.learned()
    ]
    content = {"suffolk": "calibration", "version": VERSION, "learned": learned}
    write_atomically(path, (json.dumps(content) + "\n").encode())


def read_calibration(path: Path) -> Calibration:
    """What ``write_calibration`` wrote.

    Raises:
        NotFound: it cannot be read.
        Corruption: it is no calibration, or a damaged one.
        Unsupported: it is one of another version.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NotFound(
            f"calibration {path}: cannot be read ({error.strerror}); leave it out to begin without"
        ) from error
    except ValueError as error:
        raise Corruption(f"calibration {path} is no JSON: {error}; remove it to begin anew") from error
    if not isinstance(content, dict) or content.get("suffolk") != "calibration":
        raise Corruption(
            f'calibration {path} does not say "suffolk": "calibration"; name a file that --calibration wrote'
        )
    if content.get("version") != VERSION:
        raise Unsupported(
            f"calibration {path} has version {content.get('version')!r}, this program reads {VERSION}; remove it to begin anew"
        )
    try:
        return Calibration([_read(each) for each in content["learned"]])
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, InvalidArgument) as error:
        raise Corruption(f"calibration {path} is damaged ({error}); remove it to begin anew") from error


def _read(each: dict[str, Any]) -> Learned:
    source, request_class, kind = (str(each[key]) for key in ("source", "class", "kind"))
    state, reliability = _dense(each["state"]), np.asarray(each["reliability"], np.float64)
    _LEARNERS[kind]().restore(state)
    if reliability.shape != Reliability().state().shape or not bool(
        np.all(np.isfinite(reliability) & (reliability >= 0))
    ):
        raise InvalidArgument(f"reliability of {source} must be {3 * BINS} numbers, 0 or more")
    return Learned(source, request_class, kind, state, reliability)


def _sparse(state: npt.NDArray[np.float64]) -> dict[str, Any]:
    cells = np.flatnonzero(state)
    return {"size": len(state), "cells": cells.tolist(), "values": state[cells].tolist()}


def _dense(state: dict[str, Any]) -> npt.NDArray[np.float64]:
    size = int(state["size"])
    if not 0 <= size <= 1 << 20:
        raise InvalidArgument(f"a state has {size} entries")
    found = np.zeros(size, np.float64)
    found[np.asarray(state["cells"], np.int64)] = np.asarray(state["values"], np.float64)
    return found
