"""The accounts of one request: a drafter that may leave out its networks keeps two."""

from __future__ import annotations

from suffolk.serving.engine.policy.account import Account
from suffolk.serving.engine.policy.trust import Trust

_GIFT = 0.05
"""Share of what other drafts earn, in requests that have saved, that their drafter's networks may lose: a network must be tried to
be known."""
_TEXT_BELIEF = 2.0
_TEXT_MEMORY = 0.95
_RATE_MEMORY = 0.9
_PLAIN = 4.0
"""Tokens at the rate of plain decoding with which the count of a request's rate begins."""


class Ledger:
    """What one request's drafts have earned: those of its drafter, and apart from them those of networks that it may leave out.

    What networks lose ends their drafts and not the others': networks that read a first prompt in twelve tokens' time once kept
    retrieval from drafting in four answers. While the others may not draft, networks pay for all. Not thread-safe.

    Attributes:
        trust: how far scores have kept their promises in this text.
        with_networks: whether networks may draft in this step.
    """

    def __init__(self, drafter: Account, networks: Account | None = None) -> None:
        """``networks``: None if the drafter has none that it may leave out."""
        self.trust = Trust(_TEXT_BELIEF, _TEXT_MEMORY, _TEXT_MEMORY)
        self.with_networks = False
        self._drafter, self._networks = drafter, networks
        self._accounts = [drafter] if networks is None else [drafter, networks]
        self._open = self._accounts  # those that may draft in this step
        self._paying = drafter
        self._came = self._took = _PLAIN

    @property
    def rate(self) -> float:
        """Tokens that came of late in the time of one in plain decoding, 1 or more."""
        return max(1.0, self._came / self._took)

    @property
    def rests(self) -> bool:
        """Whether nothing may be drafted in this step; a request that was not asked yet does not rest."""
        return not self._open

    @property
    def may_pass(self) -> bool:
        """Whether a draft may take passes of the drafter's own in this step."""
        return self._networks is None or self.with_networks

    @property
    def backing(self) -> float:
        """Tokens that a draft of this step may lose."""
        return sum(each.backing for each in self._open)

    @property
    def balance(self) -> float:
        """Tokens that the request has saved and may stake in this step, 0 or more."""
        return sum(each.balance for each in self._open)

    @property
    def wealth(self) -> float:
        """Tokens that its drafter has for this step, 40 at most; of all accounts if none may draft."""
        return max(each.wealth for each in self._open or self._accounts)

    def should_propose(self) -> bool:
        """Whether to ask for a draft in this step, by ``with_networks`` of networks too; counts the step."""
        self._open = [each for each in self._accounts if each.should_propose()]
        self.with_networks = self._networks in self._open
        self._paying = self._open[0] if self._open else self._drafter
        return bool(self._open)

    def borrow(self, tokens: float, of_networks: float = 0.0) -> None:
        """Reading the text cost ``tokens``' time, and networks ``of_networks``: see ``Account.borrow``."""
        self._paying.borrow(tokens)
        (self._networks or self._drafter).borrow(of_networks)

    def book(
        self, earned: float, of_networks: float = 0.0, common: float = 0.0, common_of_networks: float = 0.0
    ) -> None:
        """A step that proposed brought ``earned`` tokens, and networks ``of_networks``, costs taken off; see ``Account.book``."""
        if self._networks is None or self._paying is self._networks:
            self._paying.book(earned + of_networks, common + common_of_networks)
            return
        gift = _GIFT * max(0.0, earned) if self._drafter.balance > 0 else 0.0
        self._drafter.book(earned - gift, common)
        self._networks.give(gift)
        if self.with_networks:
            self._networks.book(of_networks, common_of_networks)

    def pace(self, tokens: int, took: float) -> None:
        """A step brought ``tokens`` in the time of ``took`` in plain decoding, the reading of texts apart."""
        self._came = _RATE_MEMORY * self._came + tokens
        self._took = _RATE_MEMORY * self._took + took

    def close(self) -> None:
        """The request has ended."""
        for each in self._accounts:
            each.close()
