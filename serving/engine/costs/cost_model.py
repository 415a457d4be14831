"""The time of a model's forward pass on this device, by its rows, its requests and their contexts."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import InvalidArgument

_COMMON_RATE = 0.06
_LOCAL_RATE = 0.3
_OUTLIER = 1.5
_OPTIMISM = 0.998
_DOUBT = 0.7
"""Each step lowers the points of larger passes by ``_OPTIMISM``, down to this share of the measured time.

So a measurement that was too high is tried again.
"""
DRIFT_FACTOR = 1.3
DRIFT_STEPS = 32
_SWEEPS = 300

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured pass: ``rows`` rows in total, of ``requests`` requests with ``context`` cached tokens each."""

    rows: int
    requests: int
    context: int
    seconds: float


class CostModel:
    """Estimates the seconds of a pass: a curve over its rows, plus terms for requests, cached keys, and rows times keys.

        curve(rows) + requests * (per_request + per_key * context) + per_pair * rows * context

    The cost of linear layers depends only on the number of rows. The form of this cost depends on the device (flat, stepped, a
    jump at the second row). So the curve interpolates between measured points. Attention runs request by request over cached
    keys, so its terms are linear. A table of rows x requests x context would need forty noisy points; three terms replace it.
    The modelled cost never falls when rows, requests or context grow. Nor does it exceed the cost of the same rows in separate
    passes of one row.

    Real steps correct the curve, mostly at the nearest point and a little at the others. All costs are scaled if the median of
    ``DRIFT_STEPS`` plain steps (one row per request) differs from the measured time by more than ``DRIFT_FACTOR``. This happens
    on another machine, or on a busier one. Not thread-safe.

    Attributes:
        sizes: float64[n], rows of the measured points, rising from 1.
        measured: float64[n], their seconds as measured, scaled by drifts.
        per_request, per_key, per_pair: seconds, 0 or more.
        drifts: how often all costs were scaled.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        seconds: Sequence[float],
        per_request: float = 0.0,
        per_key: float = 0.0,
        per_pair: float = 0.0,
    ) -> None:
        """Raises InvalidArgument: ``sizes`` do not rise from 1, ``seconds`` are fewer or not positive, or a term is negative."""
        if len(sizes) != len(seconds) or not len(sizes) or sizes[0] != 1 or bool(np.any(np.diff(sizes) <= 0)):
            raise InvalidArgument(
                f"costs: sizes {list(sizes)} must rise from 1 and be as many as the {len(seconds)} times"
            )
        terms = (per_request, per_key, per_pair)
        if not np.all(np.isfinite([*seconds, *terms])) or min(seconds) <= 0 or min(terms) < 0:
            raise InvalidArgument(f"costs: seconds {list(seconds)} must be positive and terms {terms} 0 or more")
        self.sizes = np.asarray(sizes, np.float64)
        self.measured = np.minimum.accumulate(np.array(seconds, np.float64)[::-1])[::-1]  # made to rise
        self.per_request, self.per_key, self.per_pair = terms
        self.drifts = 0
        self._curve = self.measured.copy()
        self._ratios: deque[float] = deque(maxlen=DRIFT_STEPS)

    @staticmethod
    def fit(samples: Sequence[Sample]) -> CostModel:
        """The model with the least relative squared error on ``samples``. Raises InvalidArgument: no sample has one row."""
        if not samples or min(sample.rows for sample in samples) != 1:
            raise InvalidArgument("costs: no pass of one row was measured")
        rows, requests, context, seconds = (
            np.array([getattr(sample, name) for sample in samples], np.float64)
            for name in ("rows", "requests", "context", "seconds")
        )
        sizes = np.unique(rows)
        # the curve is a sum of rises, none of them negative
        steps = np.stack([np.interp(rows, sizes, sizes >= size) for size in sizes], 1)
        columns = np.column_stack([steps, requests - 1, requests * context, rows * context]) / seconds[:, None]
        found = _nonnegative_least_squares(columns, np.ones(len(samples)))
        *rises, per_request, per_key, per_pair = found.tolist()
        curve = np.maximum(np.cumsum(rises) - per_request, seconds.min() * 1e-3)
        return CostModel([int(size) for size in sizes], curve.tolist(), per_request, per_key, per_pair)

    def copy(self) -> CostModel:
        """A copy with the measured costs, without the corrections by real steps."""
        terms = self.per_request, self.per_key, self.per_pair
        return CostModel(self.sizes.astype(int).tolist(), self.measured.tolist(), *terms)

    def time(self, rows: int, requests: int, context: float) -> float:
        """Seconds of a pass of ``rows`` rows in total, 1 or more. ``context``: mean cached tokens of the ``requests``."""
        return float(self.times(np.asarray([rows], np.float64), requests, context)[0])

    def times(self, rows: Floats, requests: int, context: float, reads: bool = False) -> Floats:
        """float64[k], ``time`` of each of ``rows``. Extrapolates with the last slope.

        ``reads``: whether the passes also read prompts. Their times are those measured at first, because ``update`` gets only
        passes that do not.
        """
        curve = self.measured if reads else np.maximum.accumulate(self._curve)
        return self._times(curve, rows, requests, context)

    def update(self, rows: int, requests: int, context: float, seconds: float) -> None:
        """Learn from a real pass."""
        self._correct(rows, requests, context, seconds)
        if rows != requests:
            return
        at = np.asarray([rows], np.float64)
        self._ratios.append(seconds / float(self._times(self.measured, at, requests, context)[0]))
        factor = float(np.median(self._ratios))
        if len(self._ratios) == DRIFT_STEPS and not 1 / DRIFT_FACTOR <= factor <= DRIFT_FACTOR:
            self._scale(factor)

    def _times(self, curve: Floats, rows: Floats, requests: int, context: float) -> Floats:
        slope = 0.0 if len(curve) < 2 else (curve[-1] - curve[-2]) / (self.sizes[-1] - self.sizes[-2])
        linear = np.interp(rows, self.sizes, curve) + np.maximum(0.0, rows - self.sizes[-1]) * slope
        single = curve[0] + self.per_request + (self.per_key + self.per_pair) * context
        whole = linear + requests * (self.per_request + self.per_key * context) + self.per_pair * context * rows
        return np.asarray(np.minimum(whole, rows * single), np.float64)

    def _correct(self, rows: int, requests: int, context: float, seconds: float) -> None:
        believed = self.time(rows, requests, context)
        ratio = min(max(seconds / believed, 1 / _OUTLIER), _OUTLIER)
        curve = np.maximum.accumulate(self._curve)
        nearest = int(np.argmin(np.abs(np.log(self.sizes / rows))))
        here = max(curve[nearest] + believed * (ratio**_LOCAL_RATE - 1), 1e-3 * self.measured[0])
        self._curve *= ratio**_COMMON_RATE
        larger, floor = self._curve[nearest:], _DOUBT * self.measured[nearest:]
        self._curve[nearest:] = np.maximum(larger * _OPTIMISM, np.minimum(larger, floor))
        self._curve[nearest] = here
        self._curve[:nearest] = np.minimum(self._curve[:nearest], here)

    def _scale(self, factor: float) -> None:
        self.measured *= factor
        self._curve = self.measured.copy()
        self.per_request, self.per_key, self.per_pair = (
            factor * term for term in (self.per_request, self.per_key, self.per_pair)
        )
        self._ratios.clear()
        self.drifts += 1


def _nonnegative_least_squares(columns: Floats, values: Floats) -> Floats:
    """The x >= 0 with the least |columns @ x - values|, by coordinate descent over about a dozen columns."""
    lengths = np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    columns = columns / lengths
    products, aims = columns.T @ columns, columns.T @ values
    found = np.zeros(len(aims))
    for _ in range(_SWEEPS):
        for number in range(len(found)):
            found[number] = max(0.0, found[number] + aims[number] - products[number] @ found)
    return np.asarray(found / lengths, np.float64)
