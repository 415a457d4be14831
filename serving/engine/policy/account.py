"""What drafting has earned, for a request and for a drafter, and when it may be tried again."""

from __future__ import annotations

import math

_GRACE = 1.0
_AGAIN = 0.3
ALLOWANCE = 0.01
"""Tokens that drafts which never pay may cost a step, in the long run."""
_CAP = 10.0
_PURSE_CAP = 40.0
_PURSE_FLOOR = -20.0
"""For each open request: 16 that read their prompts at once may owe much, and all of it was spent."""
_SHARED = 0.5
_WEALTH = 20.0
_CREDIT = 0.25
"""Share of what its backer has that a purse may owe."""
LINE = 2.0
"""Tokens that a request may lose in a row while others earn."""
_REPAID = 0.1
_LONGEST_PAUSE = 200
_BACKED = 0.1
_INSTALMENT = 0.03
"""Of a debt, per step that proposes."""


class Purse:
    """What all requests of one drafter may lose together: tokens that drafts brought less those that their time would have brought.

    It begins with a plain step's worth, gets its allowance for every step of a request and half of what requests earn,
    and bears the losses of those without savings; once it is empty they wait until a third of that has come again: bets are small
    by then. So drafts that never pay cost in the long run a hundredth of a step a step, at any number of requests and however short
    they are. It holds 40 at most, and owes 20 at most for each request that is open: an accident is not held against a drafter for
    ever. Not thread-safe.

    Attributes:
        allowance: tokens for a step of a request; line: tokens that a request may lose in a row while others earn.
        lends: whether requests without savings may draft.
    """

    def __init__(self, allowance: float = ALLOWANCE, line: float = LINE, backer: Purse | None = None) -> None:
        """``allowance``: tokens that it gets for a step of a request. ``line``: tokens that a request may lose in a row while
        others earn. ``backer``: whose wealth lets it lend a while longer."""
        self.allowance, self.line = allowance, line
        self._backer = backer
        self._balance = _GRACE
        self._requests = 0
        self.lends = True

    @property
    def balance(self) -> float:
        """Tokens in it, 40 at most; what is below 0 it owes."""
        return self._balance

    @property
    def rich(self) -> bool:
        """Whether the drafter earns by and large, so that a request which does not must be told apart."""
        return self._balance > _WEALTH

    def open(self) -> Account:
        """A new request's account, which must be closed."""
        self._requests += 1
        return Account(self)

    def close(self, tokens: float) -> None:
        """A request that brings ``tokens`` has ended."""
        self.put(tokens)
        self._requests -= 1

    def put(self, tokens: float) -> None:
        """Add ``tokens``, losses if negative."""
        floor = min(
            self._balance, _PURSE_FLOOR * max(1, self._requests)
        )  # what many owed is not forgiven as they leave
        self._balance = min(_PURSE_CAP, max(floor, self._balance + tokens))
        credit = _CREDIT * max(0.0, self._backer.balance) if self._backer is not None else 0.0
        self.lends = self._balance + credit > (0 if self.lends else _AGAIN)


class Account:
    """What one request of a drafter has saved. Not thread-safe.

    One that loses more than its purse's line in a row on top of its savings, while others earn, pauses for ten steps a token.

    Attributes:
        balance: savings in tokens, 0..10.
    """

    def __init__(self, purse: Purse) -> None:
        self.balance = 0.0
        self._purse = purse
        self._lost = 0.0
        self._debt = 0.0
        self._waiting = 0

    @property
    def backing(self) -> float:
        """Tokens that a draft may lose: its own savings, and a part of what its drafter has."""
        return self.balance + _BACKED * max(0.0, self._purse.balance)

    @property
    def wealth(self) -> float:
        """Tokens that its drafter has, 40 at most."""
        return self._purse.balance

    def should_propose(self) -> bool:
        """Whether to ask for a draft in this step; counts the step."""
        self._purse.put(self._purse.allowance)
        if self._waiting:
            self._waiting -= 1
            return False
        return self.balance > 0 or self._purse.lends

    def give(self, tokens: float) -> None:
        """Add ``tokens`` to its purse."""
        self._purse.put(tokens)

    def borrow(self, tokens: float) -> None:
        """Reading its text cost the drafter ``tokens``' time, for all its drafts to come: booked little by little, the rest at the
        end."""
        self._debt += tokens

    def book(self, earned: float, common: float = 0.0) -> None:
        """A step that proposed brought ``earned`` tokens, its costs taken off; the purse bears ``common`` if it lends."""
        instalment = _INSTALMENT * self._debt
        self._debt -= instalment
        earned -= instalment
        if not self._purse.lends:
            earned, common = earned - common, 0.0
        shared = _SHARED * max(0.0, earned)
        balance = self.balance + earned - shared
        self.balance = min(_CAP, max(0.0, balance))
        self._purse.put(shared + balance - self.balance - common)
        self._lost = max(0.0, self._lost - earned) if self.balance == 0 else 0.0
        if self._lost > self._purse.line and self._purse.rich:
            self._waiting = min(_LONGEST_PAUSE, math.ceil(self._lost / _REPAID))
            self._lost = 0.0

    def close(self) -> None:
        """The request has ended: its savings go to the purse, and so do its debts."""
        self._purse.close(self.balance - self._debt)
        self.balance = self._debt = 0.0
