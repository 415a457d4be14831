"""What drafting may lose: a token bucket for each group of sources."""

from __future__ import annotations

from suffolk.serving.engine.policy.constants import (
    ADAPTION,
    DRAFT_STAKE,
    INSTALMENT,
    LEAST_STAKE,
    MOST_SAVED,
    REFILL,
    RESUME,
    STAKE,
    START,
    UNUSUAL,
)


class SpeculationBudget:
    """Tokens that the drafts of one group of sources may lose, over all requests.

    Each step of a request adds a hundredth of a token; drafts add what they bring and take what they cost. Drafting pauses while
    the bucket is empty. So drafts that never pay cost 1 % in the long run, at any number of requests. Not thread-safe.
    """

    def __init__(self, refill: float = REFILL) -> None:
        """``refill``: tokens that a step of a request adds."""
        self._refill = refill
        self._balance = START
        self._deferred = 0.0
        self._usual = 0.0
        self._requests = 0
        self._allows = True

    @property
    def allows(self) -> bool:
        """Whether the group may draft now."""
        return self._allows

    @property
    def balance(self) -> float:
        """Tokens in the bucket, at most ``MOST_SAVED``; negative while it is overdrawn."""
        return self._balance

    def open(self) -> None:
        """A request joins."""
        self._requests += 1

    def close(self) -> None:
        """A request has ended."""
        self._requests -= 1

    def refill(self) -> None:
        """A step of a request begins: it adds its tokens and pays an instalment of what was deferred."""
        instalment = INSTALMENT * self._deferred
        self._deferred -= instalment
        self.add(self._refill - instalment)

    def stake(self, requests: int) -> float:
        """Tokens that the trees of one pass of ``requests`` requests may cost."""
        return max(LEAST_STAKE * requests, STAKE * self._balance)

    def draft_stake(self) -> float:
        """Tokens of model time that one request's draft may take."""
        return DRAFT_STAKE + STAKE * max(0.0, self._balance)

    def spend(self, tokens: float) -> None:
        """A draft took ``tokens`` of time. What is unusual about it is deferred."""
        if tokens <= 0:
            return
        now = min(tokens, UNUSUAL * (self._usual or LEAST_STAKE))
        self._usual += (now - self._usual) * (ADAPTION if self._usual else 1.0)
        self.defer(tokens - now)
        self.add(-now)

    def defer(self, tokens: float) -> None:
        """Prefill took ``tokens`` of time, for many drafts to come: later steps pay."""
        self._deferred += tokens

    def add(self, tokens: float) -> None:
        """Put ``tokens`` in; a loss if negative."""
        floor = min(self._balance, -MOST_SAVED / 2 * max(1, self._requests))
        self._balance = min(MOST_SAVED, max(floor, self._balance + tokens))
        self._allows = self._balance > (0.0 if self._allows else RESUME)
