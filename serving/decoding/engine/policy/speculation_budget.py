"""Limits the losses of drafting by a token bucket for each group of sources."""

from __future__ import annotations

from collections import deque

from suffolk.serving.decoding.engine.policy import constants

_RECENT = 5


class UsualTime:
    """``seconds``: the lower median of the last five drafts; 0 until known. One slow draft does not raise the median."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Learn the time of a draft."""
        self._recent.append(seconds)
        self.seconds = sorted(self._recent)[(len(self._recent) - 1) // 2]


class SpeculationBudget:
    """The loss budget of one group of sources, in tokens, shared by all requests. Not thread-safe.

    Each step of a request adds ``refill`` tokens. Accepted drafted tokens are added; the time of drafts is subtracted. Drafting
    pauses while the budget is empty. So useless drafts cost 1 % in the long run if ``refill`` is 0.01, for any number of
    requests.

    Attributes:
        balance: tokens in the budget, at most ``MOST_SAVED``; negative if overdrawn.
        requests: open requests, which the owner counts.
        trial: the current cost of a small tree, in tokens. The owner sets this while the group is paused, before a trial.
        allows: whether the group may draft now.
    """

    def __init__(self, refill: float = constants.REFILL) -> None:
        """``refill``: tokens that each step of a request adds."""
        self._refill = refill
        self.balance = constants.START
        self._deferred = 0.0
        self._usual = UsualTime()
        self._start_up = constants.START_UP
        self.requests = 0
        self.trial = 0.0
        self.allows = True

    def refill(self) -> None:
        """Start a step of a request: add its tokens, and pay an instalment of the deferred costs."""
        instalment = constants.INSTALMENT * self._deferred
        self._deferred -= instalment
        self.add(self._refill - instalment)

    def stake(self, requests: int) -> float:
        """The most tokens that the trees of one pass of ``requests`` requests may cost."""
        return max(constants.LEAST_STAKE * requests, self.balance)

    def draft_stake(self) -> float:
        """The most tokens of model time that one request's draft may take."""
        return constants.DRAFT_STAKE + constants.STAKE * max(0.0, self.balance)

    def spend(self, seconds: float, token_seconds: float) -> None:
        """Subtract the time of a draft. ``token_seconds``: the time of a token in plain decoding.

        The part of the time above ``UNUSUAL`` times the usual time is not subtracted now. First the allowance ``START_UP`` pays for
        this part, because cold files make the first drafts slow. What exceeds the allowance is deferred.
        """
        if seconds <= 0:
            return
        usual = self._usual.seconds or constants.LEAST_STAKE * token_seconds
        self._usual.add(seconds)
        rest = max(0.0, seconds - constants.UNUSUAL * usual)
        start_up = min(rest, self._start_up)
        self._start_up -= start_up
        self.defer((rest - start_up) / token_seconds)
        self.add((rest - seconds) / token_seconds)

    def defer(self, tokens: float) -> None:
        """Defer a cost of ``tokens`` tokens, for example of a prefill. Later steps pay it in instalments."""
        self._deferred += tokens

    def add(self, tokens: float) -> None:
        """Add ``tokens`` tokens; a loss is negative."""
        floor = min(self.balance, -constants.MOST_SAVED / 2 * max(1, self.requests))
        self.balance = min(constants.MOST_SAVED, max(floor, self.balance + tokens))
        self.allows = self.balance > (0.0 if self.allows else constants.RESUME + self.trial)
