"""Decides when to ask for a draft and how much of it to verify, so that drafting pays or stops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from serving.decoding.cost_curve import CostCurve

_MARGIN = 1.02
"""A tree must promise this much over plain decoding: costs and scores are estimates."""

_GRACE = 1.0
_FLOOR = -1.0
_CAP = 10.0
_ALLOWANCE = 0.01
_MIN_PAUSE, _MAX_PAUSE = 4, 64

_BELIEF = 4.0
"""Accepted tokens' worth of belief in the scores before any were tried."""
_MEMORY = 0.97
_FORGETTING = 0.995
"""Per step that verified something, and per step that did not: a low opinion of the scores does not last for ever."""


class Planner:
    """Tree sizes from the cost curve, how far scores have kept their promises, and an account of what drafting has earned.

    Scores are scaled by (tokens accepted) / (tokens that the scores promised), of late: the trees that look worth verifying
    are those whose scores are too high, so that even calibrated scores promise too much where little is accepted.

    A step that proposed earns (tokens it gave) - (its time in plain steps). The account starts with one plain step, gets a
    hundredth of one per step, and stays within -1 and 10. While it is overdrawn, proposing pauses for 4, 8 ... 64 steps
    between probes. So a run of bad luck changes nothing, and drafts that never pay cost about one plain step and then one
    draft in 65 steps. Not thread-safe.
    """

    def __init__(self, curve: CostCurve) -> None:
        self.curve = curve
        self._account = _GRACE
        self._pause = 0
        self._waiting = 0
        self._accepted = 0.0
        self._promised = 0.0
        self._promise = 0.0

    def begin(self) -> None:
        """A new request: its text may suit the drafts better, so a debt and the wait for it end; the next wait is shorter."""
        self._account = max(0.0, self._account)
        self._waiting = 0
        self._pause //= 4

    def should_propose(self) -> bool:
        """Whether to ask for a draft in this step; counts the step."""
        if self._waiting:
            self._waiting -= 1
            return False
        return True

    def choose(self, scores: npt.NDArray[np.float32]) -> int:
        """How many of the nodes, whose ``scores`` fall, to verify: the argmax of expected tokens per second; 0 is normal."""
        self._promise = 0.0
        if not len(scores):
            return 0
        kept = min(1.0, (_BELIEF + self._accepted) / (_BELIEF + self._promised))
        sizes = np.arange(1, len(scores) + 2, dtype=np.float64)
        promises = np.concatenate([[0.0], np.cumsum(scores, dtype=np.float64)])
        rates = (1.0 + kept * promises) / self.curve.times(sizes)
        best = int(np.argmax(rates))
        if rates[best] <= rates[0] * _MARGIN:
            return 0
        self._promise = float(promises[best])
        return best

    def record(self, tokens: int, seconds: float, proposed: bool, size: int, forward_seconds: float) -> None:
        """Learn from a step: tokens given, its whole time, whether it proposed, and its pass over ``size`` rows."""
        self.curve.update(size, forward_seconds)
        verified = proposed and size > 1
        memory = _MEMORY if verified else _FORGETTING
        self._accepted = memory * self._accepted + (tokens - 1 if verified else 0)
        self._promised = memory * self._promised + (self._promise if verified else 0.0)
        self._account = min(_CAP, self._account + _ALLOWANCE)
        if not proposed:
            return
        plain = self.curve.time(1)
        earned = tokens - (seconds - forward_seconds) / plain - (forward_seconds / plain if size > 1 else 1.0)
        self._account = max(_FLOOR, self._account + earned)
        if self._account >= 0:
            self._pause = 0
        else:
            self._pause = min(_MAX_PAUSE, max(_MIN_PAUSE, 2 * self._pause))
            self._waiting = self._pause
