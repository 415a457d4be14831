"""Decides in each step whether to wait for a remote datastore or to use prefetched drafts, by the drafting policy's estimates."""

from __future__ import annotations

from collections import deque

from suffolk.serving.decoding.engine.policy.acceptance_model import Estimate
from suffolk.serving.decoding.engine.policy.constants import MARGIN, RECOVERY, TRIALS

_KNOWN = 3
"""Calls to wait for before their duration counts as known."""
_CALLS = 8
"""Number of recent calls, of which the fastest is used, because slower calls include other load on the machine."""
_EXPECTED = 0.5
"""Prior of the expected tokens of a draft that was waited for."""
_SHARE = 0.6
"""Prior of a prefetched draft's expected tokens, as a share of the tokens of a draft that was waited for."""


class WaitPolicy:
    """Compares the tokens per second of waiting and of prefetching. Not thread-safe.

    Waiting costs the time of a call and gives a whole draft. Prefetching costs no time and gives a part of a draft. While drafts
    are prefetched, waiting is tried now and then, as ``DraftGate`` tries a source. After a missed deadline, no step waits until
    a call is answered or a trial is due.

    Attributes:
        prefetches: whether to prefetch the drafts of the next step.
    """

    def __init__(self) -> None:
        self.prefetches = False
        self._seconds: deque[float] = deque(maxlen=_CALLS)
        self._stalled = False
        self._expected, self._share = Estimate(_EXPECTED), Estimate(_SHARE)
        self._saved = 0.0  # plain tokens for the next trial

    def should_wait(self, pass_seconds: float) -> bool:
        """Whether to wait in this step. ``pass_seconds``: the time of the target's plain pass; 0 if unknown."""
        if not pass_seconds or len(self._seconds) < _KNOWN:
            self.prefetches = False
            return True
        cost = min(self._seconds) / pass_seconds
        waiting = (1 + self._expected.value) / (1 + cost)
        prefetching = 1 + self._share.value * self._expected.value
        self.prefetches = self._stalled or prefetching > (1.0 if self.prefetches else MARGIN) * waiting
        self._saved = self._saved + TRIALS if self.prefetches else 0.0
        if self._saved < cost:
            return not self.prefetches
        self._saved = 0.0
        return True

    def learn_call(self, seconds: float) -> None:
        """Learn that an answer took ``seconds``."""
        self._stalled = False
        self._seconds.append(seconds)

    def learn_timeout(self, seconds: float) -> None:
        """Learn that no answer came within a deadline of ``seconds``. Forgets earlier, faster calls."""
        self._stalled = True
        self._seconds.clear()
        self._seconds.extend([seconds] * _KNOWN)

    def learn_draft(self, tokens: float, waited: bool) -> None:
        """Learn that a draft has ``tokens`` expected tokens. ``waited``: whether it was waited for; otherwise it was prefetched."""
        if waited:
            self._expected.add(tokens)
            self._share.fade(RECOVERY)
        elif self._expected.value > 0:
            self._share.add(min(1.0, tokens / self._expected.value))
