"""Models the time of a host's pass as a linear function of its rows."""

from __future__ import annotations

import numpy as np

from suffolk.serving.engine.costs.cost_model import CostModel, Floats

_MEMORY = 0.99
"""Decay factor per pass: about the last hundred passes count."""
_OUTLIER = 1.5
"""Times are clipped to this multiple of the expected time, and to its inverse, because other programs disturb passes."""
_TRUST = 4.0
"""Weight of the first slope, in squared rows."""
_LEAST = 0.05
"""Least ``base``, as a share of the mean pass time."""


class LinearCosts(CostModel):
    """Seconds of a pass: ``base + slope * rows``, fitted to the last passes. Not thread-safe.

    ``CostModel`` learns a curve from measurements on an idle machine, which a host does not allow. A line
    with two parameters is less prone to noise that favours single draft sizes.
    """

    def __init__(self, rows: Floats, seconds: Floats) -> None:
        """Fit the line to the first passes. ``rows``, ``seconds``: float64[n], with at least two different ``rows``."""
        self._slope = self._first = max(0.0, float(np.polyfit(rows, seconds, 1)[0]))
        super().__init__([1], [float(seconds.min())])
        self._weight = float(len(rows))
        self._rows, self._seconds = float(rows.mean()), float(seconds.mean())
        self._spread = float(((rows - self._rows) ** 2).mean())
        self._joint = float(((rows - self._rows) * (seconds - self._seconds)).mean())

    def times(self, rows: Floats, requests: int, context: float) -> Floats:
        """See ``CostModel.times``. Requests and context are ignored."""
        base = max(_LEAST * self._seconds, self._seconds - self._slope * self._rows)
        return np.asarray(base + self._slope * rows, np.float64)

    def update(self, rows: int, requests: int, context: float, seconds: float) -> None:
        """Learn from a pass."""
        expected = self.time(rows, requests, context)
        seconds = min(max(seconds, expected / _OUTLIER), _OUTLIER * expected)
        self._weight = _MEMORY * self._weight + 1
        share = 1 / self._weight
        more_rows, more_seconds = rows - self._rows, seconds - self._seconds
        self._rows += share * more_rows
        self._seconds += share * more_seconds
        self._spread = (1 - share) * (self._spread + share * more_rows**2)
        self._joint = (1 - share) * (self._joint + share * more_rows * more_seconds)
        trust = _TRUST / self._weight
        self._slope = max(0.0, (self._joint + trust * self._first) / (self._spread + trust))
