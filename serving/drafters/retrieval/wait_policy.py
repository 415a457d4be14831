"""Whether a step waits for a retriever's answer, or takes what could be foreseen and was asked ahead."""

from __future__ import annotations

from collections import deque

_TRIALS = 3
"""Calls that are waited for before it is known how long they take."""
_CALLS = 8
"""The fastest of so many tells how far the retriever is: the others tell how busy the machine was."""
_PROMISED, _BELIEF = 0.5, 2
"""Tokens that drafts promise a request which are waited for, until more is known, and how many drafts' worth of belief that is."""
_FORESEEN = 0.6
"""Of these the share that foreseen drafts promise, until more is known."""
_ADAPTION, _FORGETTING = 0.05, 0.005
"""Per step: of what drafts promise, and of the share that is not measured while answers are waited for."""
_MISSED = 0.25
"""Of what drafts promise that are waited for, what a call without an answer takes away."""
_AGAIN, _AGAIN_COST = 16, 0.005
"""After so many steps with foreseen drafts, or more so that this costs no larger share of the time, one answer is waited for: the
retriever may have come nearer."""
_CLEARLY = 1.02


class WaitPolicy:
    """Compares tokens a second: waiting brings whole drafts for a call's time, what is foreseen is a part of them for nothing.
    Not thread-safe.

    Attributes:
        far: whether to ask ahead.
    """

    def __init__(self) -> None:
        self.far = False
        self._seconds: deque[float] = deque(maxlen=_CALLS)
        self._promised, self._foreseen = _PROMISED, _FORESEEN
        self._waited = _BELIEF
        self._steps = 0

    def waits(self, pass_seconds: float) -> bool:
        """Whether to wait for the answer in this step, whose plain pass takes ``pass_seconds``; 0 if that is not known: yes."""
        if not pass_seconds or len(self._seconds) < _TRIALS:
            self.far = False
            return True
        cost = min(self._seconds) / pass_seconds
        waiting = (1 + self._promised) / (1 + cost)
        ahead = 1 + self._foreseen * self._promised
        self.far = ahead > waiting if self.far else ahead > _CLEARLY * waiting
        again = self.far and self._steps >= max(_AGAIN, cost / _AGAIN_COST)
        self._steps = self._steps + 1 if self.far and not again else 0
        return not self.far or again

    def learn_wait(self, seconds: float) -> None:
        """An answer took so long."""
        self._seconds.append(seconds)

    def learn_miss(self, seconds: float) -> None:
        """No answer came within the deadline, so long: faster ones of before do not count any more."""
        self._seconds.clear()
        self._seconds.extend([seconds] * _TRIALS)
        self._promised *= 1 - _MISSED

    def learn_promise(self, tokens: float, waited: bool) -> None:
        """A request's drafts of this step promise ``tokens``, of an answer that was waited for or of a foreseen one."""
        if waited:
            self._waited += 1
            self._promised += max(_ADAPTION, 1 / self._waited) * (tokens - self._promised)
            self._foreseen += _FORGETTING * (_FORESEEN - self._foreseen)
        elif self._promised > 0:
            self._foreseen += _ADAPTION * (min(1.0, tokens / self._promised) - self._foreseen)
