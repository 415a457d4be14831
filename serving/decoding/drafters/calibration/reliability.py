"""A reliability diagram that is updated online: predicted probabilities against observed frequencies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import InvalidArgument

BINS = 10
_ROUNDING = 1e-3
"""Tolerance: predictions are in single precision."""
_FADED = 1e-300
"""Tolerance: decayed sums are rounded."""
_MOST_WAITING = 64
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bar:
    """Predictions in one tenth of 0..1: their mean, the share that came true, and their decayed number."""

    predicted: float
    measured: float
    weight: float


class Reliability:
    """Predictions and outcomes by tenths of 0..1. They decay per call of ``add``. Not thread-safe."""

    def __init__(self, decay: float = 1.0) -> None:
        self._decay = decay
        self._counted = np.zeros((3, BINS))  # rows: sum of predictions, sum of outcomes, number
        self._waiting: list[tuple[npt.NDArray[np.floating], npt.NDArray[np.bool_]]] = []

    def add(self, predicted: npt.NDArray[np.floating], taken: npt.NDArray[np.bool_]) -> None:
        """Add predicted probabilities, in 0..1. ``taken``: which of them came true. Both arrays have one length."""
        self._waiting.append((predicted, taken))
        if len(self._waiting) >= _MOST_WAITING:
            _ = self._sums

    @property
    def _sums(self) -> Floats:
        """float64[3, BINS]. Calls of ``add`` wait and are counted together, because that takes less time."""
        if self._waiting:
            ages = np.arange(len(self._waiting) - 1, -1, -1)
            weights = np.repeat(self._decay**ages, [len(each) for each, _ in self._waiting])
            predicted, taken = (np.concatenate(each) for each in zip(*self._waiting, strict=True))
            self._counted *= self._decay ** len(self._waiting)
            self._waiting.clear()
            bins = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
            for row, values in enumerate((predicted * weights, taken * weights, weights)):
                self._counted[row] += np.bincount(bins, values, BINS)
        return self._counted

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
        return np.array(self._sums.ravel())

    def restore(self, state: Floats) -> None:
        """Load a state. Raises InvalidArgument if it is malformed."""
        if state.shape != (3 * BINS,):
            raise InvalidArgument(f"reliability has {state.size} numbers; it must have {3 * BINS}")
        sums = state.reshape(3, BINS).copy()
        if not bool(np.all(np.isfinite(sums) & (sums >= 0) & (sums[:2] <= sums[2] * (1 + _ROUNDING) + _FADED).all(0))):
            raise InvalidArgument(
                "reliability has a number that is not finite, below 0, or more outcomes than predictions"
            )
        self._waiting.clear()
        self._counted = sums
