"""Decides whether a step waits for a remote datastore's answer or uses prefetched drafts."""

from __future__ import annotations

from collections import deque

_TRIALS = 3
"""Calls to wait for before their duration is believed."""
_CALLS = 8
"""Calls of which the fastest counts: the others measure how busy the machine was."""
_EXPECTED, _STRENGTH = 0.5, 2
"""Prior of the expected tokens of a draft that is waited for, and its strength in drafts."""
_SHARE = 0.6
"""Prior of the share of these that a prefetched draft has."""
_RATE, _FORGETTING = 0.05, 0.005
"""Update rates per step: of both estimates, and of the share towards its prior while answers are waited for."""
_MISSED = 0.25
"""Share of the expected tokens that a missed deadline takes away."""
_RETRY_STEPS, _RETRY_COST = 16, 0.005
"""Prefetching steps between two answers that are waited for; more if these would take a larger share of the time."""
_MARGIN = 1.02
"""Prefetching must be so many times as fast to be begun."""


class WaitPolicy:
    """Compares tokens a second: waiting brings a whole draft for a call's time, prefetching a part of one for none.

    Not thread-safe.

    Attributes:
        prefetches: whether to prefetch the next step's drafts.
    """

    def __init__(self) -> None:
        self.prefetches = False
        self._seconds: deque[float] = deque(maxlen=_CALLS)
        self._expected, self._share = _EXPECTED, _SHARE
        self._count = _STRENGTH
        self._steps = 0

    def waits(self, pass_seconds: float) -> bool:
        """Whether to wait in this step, whose plain pass takes ``pass_seconds``; yes if that is unknown, 0."""
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
        """An answer took ``seconds``."""
        self._seconds.append(seconds)

    def learn_timeout(self, seconds: float) -> None:
        """No answer came within the deadline of ``seconds``: faster calls before do not count any more."""
        self._seconds.clear()
        self._seconds.extend([seconds] * _TRIALS)
        self._expected *= 1 - _MISSED

    def learn_draft(self, tokens: float, waited: bool) -> None:
        """A request's draft of this step has ``tokens`` expected tokens; ``waited``: it was waited for, not prefetched."""
        if waited:
            self._count += 1
            self._expected += max(_RATE, 1 / self._count) * (tokens - self._expected)
            self._share += _FORGETTING * (_SHARE - self._share)
        elif self._expected > 0:
            self._share += _RATE * (min(1.0, tokens / self._expected) - self._share)
