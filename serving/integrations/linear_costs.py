"""Models the time of a host's pass as a linear function of its rows."""

from __future__ import annotations

import numpy as np

from suffolk.serving.decoding.engine.costs.cost_model import CostModel, Floats

_ROW_COST = 0.1
"""Prior time of one more row, as a share of a pass with one row. For a model of 135M parameters on a CPU core, half of
this was measured."""
_MEMORY = 0.99
"""Decay factor per pass: about the last hundred passes count."""
_OUTLIER = 1.5
"""Times are clipped to this multiple of the expected time, and to its inverse, because other programs disturb passes."""
_FEW = 8.0
"""Long times are clipped only after about this many passes, because the prior slope can be far too low."""
_RESTART = 2.0
"""A pass that takes less than the expected time divided by this restarts the fit: the first passes of a host can be
slow."""
_TRUST = 1.0
"""Weight of the prior slope, in squared rows."""
_LEAST = 0.05
"""Least ``base``, as a share of the mean pass time."""


class LinearCosts(CostModel):
    """Seconds of a pass: ``base + slope * rows``, fitted to the last passes. Not thread-safe.

    ``CostModel`` learns a curve from measurements on an idle machine, which a host does not allow. In a line with two
    parameters, noise cannot favour a single draft size.

    Attributes:
        slope: seconds of one more row.
    """

    def __init__(self, row_cost: float | None = None, seconds: float = 1.0) -> None:
        """Create costs that the first pass replaces.

        Args:
            row_cost: time of one more row, as a share of a pass with one row. None: measured.
            seconds: time of a pass with one row until a pass is timed.
        """
        super().__init__([1], [seconds])
        self._row_cost, self._measures_slope = _ROW_COST if row_cost is None else row_cost, row_cost is None
        self._weight = self._spread = self._joint = 0.0
        self._rows, self._seconds, self.slope = 1.0, seconds, self._row_cost * seconds

    def times(
        self, rows: Floats, requests: int, context: float, deviations: float = 0.0, reads: bool = False
    ) -> Floats:
        """See ``CostModel.times``. Only the rows matter."""
        base = max(_LEAST * self._seconds, self._seconds - self.slope * self._rows)
        return np.asarray(base + self.slope * rows, np.float64)

    def update(self, rows: int, requests: int, context: float, seconds: float) -> None:
        """Learn from a pass."""
        expected = self.time(rows, requests, context)
        if not self._weight or seconds < expected / _RESTART:
            self._restart(rows, seconds)
            return
        most = _OUTLIER * expected if self._weight >= _FEW else seconds
        seconds = min(max(seconds, expected / _OUTLIER), most)
        self._weight = _MEMORY * self._weight + 1
        share = 1 / self._weight
        more_rows, more_seconds = rows - self._rows, seconds - self._seconds
        self._rows += share * more_rows
        self._seconds += share * more_seconds
        self._spread = (1 - share) * (self._spread + share * more_rows**2)
        self._joint = (1 - share) * (self._joint + share * more_rows * more_seconds)
        self.slope = self._prior_slope()
        if self._measures_slope:
            trust = _TRUST / self._weight
            self.slope = max(0.0, (self._joint + trust * self.slope) / (self._spread + trust))

    def _restart(self, rows: int, seconds: float) -> None:
        """Fit the line to one pass and to the prior slope."""
        self._weight, self._rows, self._seconds = 1.0, float(rows), seconds
        self._spread = self._joint = 0.0
        self.slope = self._prior_slope()

    def _prior_slope(self) -> float:
        return self._row_cost * self._seconds / (1 + self._row_cost * (self._rows - 1))
