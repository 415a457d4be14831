"""The time of a model's forward pass on this device, by its rows, its requests and their contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.checks import check_range
from suffolk.datastore.errors import Field, InvalidArgument

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

    The cost of linear layers depends only on the number of rows. The form of this cost depends on the device: flat, stepped, or
    with a jump at the second row. So the curve interpolates between measured points. Attention runs request by request over
    cached keys, so its terms are linear. Three terms replace a table of rows x requests x context, which would need forty noisy
    points. The modelled cost never falls when rows, requests or context grow. It also never exceeds the cost of the same rows in
    separate passes of one row.

    Real passes correct the model by a Kalman filter. Its state has two kinds of logarithms: of the device's speed, and of a
    correction for each measured size. A device's speed changes often and for all sizes alike, because other programs run on it.
    The form of the curve changes seldom. So the filter first explains a slow pass by a lower speed. It learns the form from
    differences between successive passes of different sizes. The less likely the time of a pass is, the less the pass counts
    (csrc/drafting/pass_times.h). Not thread-safe.

    Attributes:
        sizes: float64[n], rows of the measured points, rising from 1.
        measured: float64[n], measured seconds of these points.
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
        """Raises InvalidArgument: ``sizes`` do not rise from 1, a size lacks positive ``seconds``, or a term is negative."""
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
        self._corrected = _native.PassTimes(self.sizes.tolist(), self.measured.tolist(), *terms)

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
        """The current estimate for a pass of one row, divided by the measured time."""
        return self._corrected.slowdown()

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
            deviations: how many standard deviations of the uncertainty to add to the expected times. The uncertainty is relative
                to a pass of ``requests`` rows. With a negative number, uncertain sizes are cheaper.
            reads: whether the passes also read prompts. If so, all sizes get the correction of a plain pass, because ``update``
                never gets a pass that reads prompts.
        """
        return self._corrected.times(rows, requests, context, deviations, reads)

    def update(self, rows: int, requests: int, context: float, seconds: float) -> None:
        """Learn from a real pass."""
        self._corrected.update(rows, requests, context, seconds)


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
    check_range("--slots", slots, 1, MAX_ROWS)
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
