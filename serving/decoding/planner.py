"""Decides when to ask for a draft and how much of it to verify, so that drafting pays or stops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from serving.decoding.cost_curve import CostCurve

_MARGIN = 1.02
"""A tree must promise this much over plain decoding: costs and scores are estimates."""

_GRACE = 1.0
_CAP = 10.0
_ALLOWANCE = 0.01
_MIN_PAUSE, _MAX_PAUSE = 4, 64


class Planner:
    """Tree sizes from the cost curve, and an account of what drafting has really earned.

    A step that proposed earns (tokens it gave) x (seconds of a plain step) - (seconds it took). The account starts with one
    plain step, gets a hundredth of one per step, and holds at most ten. While it is overdrawn, proposing pauses for 4, 8 ...
    64 steps between probes; a probe that earns ends the pause. So a run of bad luck changes nothing, and drafts that never
    pay cost about one plain step and then one draft in 65 steps. Not thread-safe.
    """

    def __init__(self, curve: CostCurve) -> None:
        self.curve = curve
        self._steps_earned = _GRACE
        self._pause = 0
        self._waiting = 0

    def begin(self) -> None:
        """A new request: its text may suit the drafts better, so a pause ends, but no loss is forgiven beyond that."""
        self._steps_earned = max(0.0, self._steps_earned)
        self._pause, self._waiting = 0, 0

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
        earned = 0.0
        if proposed:
            drafting = seconds - forward_seconds
            earned = (
                tokens - drafting / self.curve.time(1) - (forward_seconds / self.curve.time(1) if size > 1 else 1.0)
            )
        self._steps_earned = min(_CAP, self._steps_earned + earned + _ALLOWANCE)
        if not proposed:
            return
        if self._pause and earned > 0:
            self._pause, self._steps_earned = 0, _GRACE
        elif self._steps_earned < 0:
            self._pause = min(_MAX_PAUSE, max(_MIN_PAUSE, 2 * self._pause))
            self._waiting = self._pause
