"""The time of a model's forward pass on this device, by its rows, its requests and their contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import Field, InvalidArgument

_SHAPE, _POINT = 0.2, 0.1
"""Standard deviations of the errors of a measured curve, as logarithms: one that neighbouring sizes share, one of each size."""
_NEIGHBOURS = 3.0
"""Doublings of the rows over which the shared error keeps about a third of its correlation."""
_SPEED, _SPEED_STEP = 1.0, 0.1
"""Standard deviation of the logarithm of the device's speed at first, and of its change from pass to pass."""
_NOISE, _LEAST_NOISE, _MOST_NOISE = 0.1, 0.02, 0.5
"""Standard deviation of the logarithm of a pass's time: at first, and the bounds of what is learned."""
_NOISE_RATE = 0.02
_FORGETTING = 0.0005
"""Share of what is known of the curve that is forgotten in a pass, so that a size that is not used becomes uncertain again."""
_MOST_SURPRISE = 4.0
"""Most expected variances by which one pass raises the noise."""
_SWEEPS = 300

Floats = npt.NDArray[np.float64]
SIZES = (1, 2, 4, 8, 16, 17, 32, 33, 64)
"""Rows per request. Powers of two are not enough, because kernels work in tiles of 16 or 32 rows, and costs jump at 17 and 33."""
MAX_ROWS = 256
"""Rows of the largest measured pass. Costs of larger passes are extrapolated with the last slope."""
Point = tuple[int, int, int]
"""Rows per request, requests, and cached tokens of each request."""


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

    Real passes correct it, by a Kalman filter over logarithms: the device's speed, and a correction of each measured size. A
    device changes its speed often and for all sizes alike, because other programs run on it. The form of the curve changes
    seldom. So the filter explains a slow pass by the speed first, and learns the form from the differences between passes of
    different sizes that follow each other. The less likely the time of a pass is, the less it counts. Not thread-safe.

    Attributes:
        sizes: float64[n], rows of the measured points, rising from 1.
        measured: float64[n], their seconds as measured.
        per_request, per_key, per_pair: seconds, 0 or more.
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
                Field("costs"), f": sizes {list(sizes)} must rise from 1 and be as many as the {len(seconds)} times"
            )
        terms = (per_request, per_key, per_pair)
        if not np.all(np.isfinite([*seconds, *terms])) or min(seconds) <= 0 or min(terms) < 0:
            raise InvalidArgument(
                Field("costs"), f": seconds {list(seconds)} must be positive and terms {terms} 0 or more"
            )
        self.sizes = np.asarray(sizes, np.float64)
        self.measured = np.minimum.accumulate(np.array(seconds, np.float64)[::-1])[::-1]  # made to rise
        self.per_request, self.per_key, self.per_pair = terms
        rises = np.diff(self.measured) / np.diff(self.sizes)
        self._last_slope = float(rises[-1]) if len(rises) else 0.0
        distances = np.abs(np.subtract.outer(np.log2(self.sizes), np.log2(self.sizes)))
        self._prior = _SHAPE**2 * np.exp(-distances / _NEIGHBOURS) + _POINT**2 * np.eye(len(self.sizes))
        self._state = np.zeros(1 + len(self.sizes))  # logarithms: the speed, then the corrections
        self._covariance = np.zeros((len(self._state), len(self._state)))
        self._covariance[0, 0] = _SPEED**2
        self._covariance[1:, 1:] = self._prior
        self._noise = _NOISE**2

    @staticmethod
    def fit(samples: Sequence[Sample]) -> CostModel:
        """The model with the least relative squared error on ``samples``. Raises InvalidArgument: no sample has one row."""
        if not samples or min(sample.rows for sample in samples) != 1:
            raise InvalidArgument(Field("costs"), ": no pass of one row was measured")
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

    @property
    def slowdown(self) -> float:
        """Time of a pass of one row now, divided by its measured time."""
        return float(np.exp(self._state[0] + self._state[1]))

    def copy(self) -> CostModel:
        """A copy with the measured costs, without the corrections by real passes."""
        terms = self.per_request, self.per_key, self.per_pair
        return CostModel(self.sizes.astype(int).tolist(), self.measured.tolist(), *terms)

    def time(self, rows: int, requests: int, context: float) -> float:
        """Seconds of a pass of ``rows`` rows in total, 1 or more. ``context``: mean cached tokens of the ``requests``."""
        return float(self.times(np.asarray([rows], np.float64), requests, context)[0])

    def times(
        self, rows: Floats, requests: int, context: float, deviations: float = 0.0, reads: bool = False
    ) -> Floats:
        """float64[k], ``time`` of each of ``rows``. Extrapolates with the last slope.

        Args:
            deviations: standard deviations of what is not known yet, compared to a pass of ``requests`` rows, to add to the
                expected times. Below 0, a size is cheaper, the less is known of it.
            reads: whether the passes also read prompts. Then the correction of a plain pass corrects all sizes, because
                ``update`` gets no passes that read.
        """
        corrections = self._state[1:]
        if reads:
            return self._times(self.measured * np.exp(self._weights(requests) @ corrections), rows, requests, context)
        if deviations:
            corrections = corrections + deviations * self._deviations(requests)
        curve = np.maximum.accumulate(self.measured * np.exp(corrections))
        return self._times(curve, rows, requests, context)

    def update(self, rows: int, requests: int, context: float, seconds: float) -> None:
        """Learn from a real pass."""
        covariance = self._covariance
        covariance[0, 0] += _SPEED_STEP**2
        covariance[1:, 1:] += _FORGETTING * (self._prior - covariance[1:, 1:])
        covariance[0, 1:] *= 1 - _FORGETTING / 2
        covariance[1:, 0] *= 1 - _FORGETTING / 2
        seen = np.append(1.0, self._weights(rows))
        shared = covariance @ seen
        expected = float(seen @ shared) + self._noise
        error = float(np.log(seconds / self.time(rows, requests, context)))
        surprise = max(1.0, error**2 / expected)  # an unlikely pass was noisy, and tells less
        self._state += shared * (error / (expected * surprise))
        covariance -= np.outer(shared, shared) / (expected * surprise)
        change = min(error**2, _MOST_SURPRISE * expected) - expected
        self._noise = min(max(self._noise + _NOISE_RATE * change, _LEAST_NOISE**2), _MOST_NOISE**2)

    def _deviations(self, rows: int) -> Floats:
        """float64[n], standard deviations of the corrections of sizes above ``rows``, compared to that of ``rows``."""
        covariance, weights = self._covariance[1:, 1:], self._weights(rows)
        shared = covariance @ weights
        variances = covariance.diagonal() - 2 * shared + weights @ shared
        return np.asarray(np.where(self.sizes > rows, np.sqrt(np.maximum(0.0, variances)), 0.0), np.float64)

    def _weights(self, rows: int) -> Floats:
        """float64[n], the weights of the measured points in the correction of a pass of ``rows`` rows."""
        weights = np.zeros(len(self.sizes))
        above = int(np.searchsorted(self.sizes, rows))
        if 0 < above < len(weights):
            before, after = self.sizes[above - 1 : above + 1].tolist()
            weights[above] = (rows - before) / (after - before)
            weights[above - 1] = 1 - weights[above]
        else:
            weights[min(above, len(weights) - 1)] = 1.0
        return weights

    def _times(self, curve: Floats, rows: Floats, requests: int, context: float) -> Floats:
        slope = self._last_slope * curve[-1] / self.measured[-1]
        linear = np.interp(rows, self.sizes, curve) + np.maximum(0.0, rows - self.sizes[-1]) * slope
        single = curve[0] + self.per_request + (self.per_key + self.per_pair) * context
        whole = linear + requests * (self.per_request + self.per_key * context) + self.per_pair * context * rows
        return np.asarray(np.exp(self._state[0]) * np.minimum(whole, rows * single), np.float64)


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


def grid(contexts: Sequence[int], slots: int, limit: int | None) -> list[Point]:
    """The points to measure: 1, 2, 4 ... ``slots`` requests, each with 1..64 rows and each number of cached tokens in ``contexts``.

    Raises:
        InvalidArgument: ``slots`` is not 1..MAX_ROWS, or a context is below 1 or leaves no room for the rows in ``limit`` tokens.
    """
    if not 1 <= slots <= MAX_ROWS:
        raise InvalidArgument(f"--slots is {slots}; it must be between 1 and {MAX_ROWS}")
    if limit is not None and limit <= SIZES[-1]:
        raise InvalidArgument(
            f"the model takes {limit} tokens, and 'suffolk profile' measures passes of {SIZES[-1]} rows after one token or more; "
            "start without it: decoding measures costs itself"
        )
    for context in contexts:
        if context < 1:
            raise InvalidArgument(f"--contexts: {context} cannot be measured; each must be 1 or more")
        if limit is not None and context + SIZES[-1] > limit:
            raise InvalidArgument(
                f"--contexts: {context} cannot be measured: the model takes {limit} tokens, {SIZES[-1]} of them for the rows; give "
                f"{limit - SIZES[-1]} at most"
            )
    batches = sorted({min(2**power, slots) for power in range(slots.bit_length() + 1)})
    return [
        (size, batch, context)
        for context in sorted(set(contexts))
        for batch in batches
        for size in SIZES
        if size * batch <= MAX_ROWS
    ]
