"""Decides in each step whether to wait for a remote datastore or to use prefetched drafts."""

from __future__ import annotations

from collections import deque

_TRIALS = 3
"""Calls to wait for before their duration counts as known."""
_CALLS = 8
"""Number of recent calls, of which the fastest is used, because slower calls include other load on the machine."""
_EXPECTED, _STRENGTH = 0.5, 2
"""Prior of the expected tokens of a draft that was waited for, and the prior's strength in drafts."""
_SHARE = 0.6
"""Prior of a prefetched draft's expected tokens, as a share of those of a draft that was waited for."""
_RATE, _FORGETTING = 0.05, 0.005
"""Update rate of both estimates in a step, and the rate at which the share returns to its prior while steps wait."""
_TIMEOUT_LOSS = 0.25
"""Share by which a missed deadline lowers the expected tokens."""
_RETRY_STEPS, _RETRY_COST = 16, 0.005
"""Prefetching steps between two trials of waiting, and the largest share of time that trials may take."""
_MARGIN = 1.02
"""Prefetching starts if it is expected to be faster by this factor."""


class WaitPolicy:
    """Compares the tokens per second of waiting and of prefetching. Not thread-safe.

    Waiting costs the time of a call and gives a whole draft. Prefetching costs no time and gives a part of a draft.

    Attributes:
        prefetches: whether to prefetch the drafts of the next step.
    """

    def __init__(self) -> None:
        self.prefetches = False
        self._seconds: deque[float] = deque(maxlen=_CALLS)
        self._expected, self._share = _EXPECTED, _SHARE
        self._count = _STRENGTH
        self._steps = 0

    def waits(self, pass_seconds: float) -> bool:
        """Whether to wait in this step. ``pass_seconds``: the time of the target's plain pass; 0 if unknown."""
        if not pass_seconds or len(self._seconds) < _TRIALS:
            self.prefetches = False
            return True
        cost = min(self._seconds) / pass_seconds
        waiting = (1 + self._expected) / (1 + cost)
        prefetching = 1 + self._share * self._expected
        self.prefetches = prefetching > (1.0 if self.prefetches else _MARGIN) * waiting
        retries = self.prefetches and self._steps >= max(_RETRY_STEPS, cost / _RETRY_COST)
        self._steps = self._steps + 1 if self.prefetches and not retries else 0
        return not self.prefetches or retries

    def learn_call(self, seconds: float) -> None:
        """Learn that an answer took ``seconds``."""
        self._seconds.append(seconds)

    def learn_timeout(self, seconds: float) -> None:
        """Learn that no answer came within a deadline of ``seconds``. Forgets earlier, faster calls."""
        self._seconds.clear()
        self._seconds.extend([seconds] * _TRIALS)
        self._expected *= 1 - _TIMEOUT_LOSS

    def learn_draft(self, tokens: float, waited: bool) -> None:
        """Learn that a draft has ``tokens`` expected tokens. ``waited``: whether it was waited for; otherwise it was prefetched."""
        if waited:
            self._count += 1
            self._expected += max(_RATE, 1 / self._count) * (tokens - self._expected)
            self._share += _FORGETTING * (_SHARE - self._share)
        elif self._expected > 0:
            self._share += _RATE * (min(1.0, tokens / self._expected) - self._share)
