"""What drafting has earned for one request, and when it may be tried again."""

from __future__ import annotations

import math

GRACE = 1.0
_CAP = 10.0
_FLOOR = -4.0
_ALLOWANCE = 0.01


class Account:
    """Tokens that drafts brought less those that their time would have brought, for one request of one drafter.

    It gets a hundredth of a token a step and stays within -4 and 10. A step that leaves it overdrawn is followed by a pause,
    after which half of the debt is paid. So a run of bad luck changes nothing, a draft that costs little is tried often, and
    drafts that never pay cost in the long run a hundredth of a step a step. Not thread-safe.
    """

    def __init__(self, balance: float = GRACE) -> None:
        """``balance``: what may be lost before the first pause; below 0 it starts with one."""
        self.balance = balance
        self._waiting = _pause(balance)

    def should_propose(self) -> bool:
        """Whether to ask for a draft in this step; counts the step."""
        self.balance = min(_CAP, self.balance + _ALLOWANCE)
        if self._waiting:
            self._waiting -= 1
            return False
        return True

    def book(self, earned: float) -> None:
        """A step that proposed brought ``earned`` tokens, its costs taken off."""
        self.balance = min(_CAP, max(_FLOOR, self.balance + earned))
        self._waiting = _pause(self.balance)


class Purse:
    """Hands out the balances of one drafter's new requests and takes back what ended ones have left, debts included.

    So many short requests may lose together what one long one may. Not thread-safe.
    """

    def __init__(self) -> None:
        self._balance = GRACE

    def open(self) -> Account:
        """A new request's account: a plain step's worth if there is as much, or all of the debt."""
        balance = min(GRACE, self._balance)
        self._balance -= balance
        return Account(balance)

    def close(self, account: Account) -> None:
        """The request of ``account`` has ended."""
        self._balance = min(_CAP, max(_FLOOR, self._balance + account.balance))


def _pause(balance: float) -> int:
    return math.ceil(max(0.0, -balance) / (2 * _ALLOWANCE))
