"""What a network's drafts of one request brought and took: by how much it differs from others."""

from __future__ import annotations

from dataclasses import dataclass

_BELIEF = 1.5
"""Drafts' worth of belief in what those of all requests say."""


@dataclass(slots=True)
class OwnDrafts:
    """Drafts of one request. Not thread-safe.

    Attributes:
        count: how many were made; seconds: that they took, each with the rows that verify it.
    """

    count: int = 0
    seconds: float = 0.0
    _alone: float = 0.0
    _told: float = 0.0

    def alone(self, usual: float) -> float:
        """Tokens that the next should bring alone, which in all requests brings ``usual``."""
        return (self._alone + _BELIEF * usual) / (self._told + _BELIEF)

    def cost(self, usual: float) -> float:
        """Seconds that the next should take, which in all requests takes ``usual``."""
        return (self.seconds + _BELIEF * usual) / (self.count + _BELIEF)

    def learn(self, alone: float, telling: float, seconds: float) -> None:
        """A draft took ``seconds`` and would have brought ``alone`` tokens, of which what it added tells so much, 0..1."""
        self.count += 1
        self.seconds += seconds
        self._alone += telling * alone
        self._told += telling
