"""A reliability diagram that is updated online: predicted probabilities against observed frequencies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.errors import InvalidArgument

BINS = 10
_ROUNDING = 1e-3
"""Tolerance: predictions are in single precision."""
_FADED = 1e-300
"""Tolerance: decayed sums are rounded."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bar:
    """Predictions in one tenth of 0..1: their mean, the share that came true, and their decayed number."""

    predicted: float
    measured: float
    weight: float


class Reliability:
    """Predictions and outcomes by tenths of 0..1. They decay per call of ``add``. Not thread-safe."""

    def __init__(self, decay: float = 1.0, native: _native.Reliability | None = None) -> None:
        """``native``: the diagram of a calibrator in C++, to which that adds itself."""
        self._native = _native.Reliability(decay) if native is None else native

    def add(self, predicted: npt.NDArray[np.floating], taken: npt.NDArray[np.bool_]) -> None:
        """Add predicted probabilities, in 0..1. ``taken``: which of them came true. Both arrays have one length."""
        self._native.add(predicted.astype(np.float64), taken.astype(np.uint8))

    @property
    def _sums(self) -> Floats:
        """float64[3, BINS]; rows: sum of predictions, sum of outcomes, number."""
        return np.array(self._native.sums)

    def bars(self) -> list[Bar]:
        """The tenths that have predictions, in ascending order."""
        return [
            Bar(predicted / seen, taken / seen, seen) for predicted, taken, seen in self._sums.T.tolist() if seen > 0
        ]

    @property
    def weight(self) -> float:
        """The decayed number of predictions."""
        return float(self._sums[2].sum())

    def error(self, least: float = 0.0) -> float:
        """The expected calibration error of predictions from ``least`` on, rounded down to a tenth; 0 without predictions."""
        sums = self._sums[:, int(least * BINS) :]
        total = float(sums[2].sum())
        return float(np.abs(sums[0] - sums[1]).sum()) / total if total else 0.0

    def state(self) -> Floats:
        """float64[3 * BINS], the state for ``restore``."""
        return self._sums.ravel()

    def restore(self, state: Floats) -> None:
        """Load a state. Raises InvalidArgument if it is malformed."""
        if state.shape != (3 * BINS,):
            raise InvalidArgument(f"reliability has {state.size} numbers; it must have {3 * BINS}")
        sums = state.reshape(3, BINS).copy()
        if not bool(np.all(np.isfinite(sums) & (sums >= 0) & (sums[:2] <= sums[2] * (1 + _ROUNDING) + _FADED).all(0))):
            raise InvalidArgument(
                "reliability has a number that is not finite, below 0, or more outcomes than predictions"
            )
        self._native.sums = sums.tolist()
