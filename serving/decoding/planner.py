"""Decides when to ask for a draft and how much of it to verify, so that drafting pays or stops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from serving.decoding.cost_curve import CostCurve

_MARGIN = 1.02
"""A tree must promise this much over plain decoding: costs and scores are estimates."""

_MEMORY = 0.9
_MAX_PAUSE = 64


class Planner:
    """Tree sizes from the cost curve, and a ledger of what drafting has really earned.

    A step that proposed earns (tokens it gave) x (seconds of a plain step) - (seconds it took). While the recent sum is
    negative, proposing pauses for 1, 2, 4 ... 64 steps between probes; one probe that earns ends the pause. So drafts that
    never pay cost one draft in 65 steps. Not thread-safe.
    """

    def __init__(self, curve: CostCurve) -> None:
        self.curve = curve
        self._earned = 0.0
        self._pause = 0
        self._waiting = 0

    def should_propose(self) -> bool:
        """Whether to ask for a draft in this step; counts the step."""
        if self._waiting:
            self._waiting -= 1
            return False
        return True

    def choose(self, scores: npt.NDArray[np.float32]) -> int:
        """How many of the nodes, whose ``scores`` fall, to verify: the argmax of expected tokens per second; 0 is normal."""
        if not len(scores):
            return 0
        sizes = np.arange(1, len(scores) + 2, dtype=np.float64)
        tokens = np.concatenate([[1.0], 1.0 + np.cumsum(scores, dtype=np.float64)])
        rates = tokens / self.curve.times(sizes)
        best = int(np.argmax(rates))
        return best if rates[best] > rates[0] * _MARGIN else 0

    def record(self, tokens: int, seconds: float, proposed: bool, size: int, forward_seconds: float) -> None:
        """Learn from a step: tokens given, its whole time, whether it proposed, and its pass over ``size`` rows."""
        self.curve.update(size, forward_seconds)
        if not proposed:
            return
        earned = tokens * self.curve.time(1) - seconds
        self._earned = _MEMORY * self._earned + earned
        if earned > 0 and self._pause:
            self._earned, self._pause = 0.0, 0
        elif self._earned < 0:
            self._pause = min(_MAX_PAUSE, max(1, self._pause * 2))
            self._waiting = self._pause
