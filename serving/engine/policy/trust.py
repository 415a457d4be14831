"""How far scores have kept their promises of late."""

from __future__ import annotations

_MEMORY = 0.97
_FORGETTING = 0.995
"""Per draft that was verified, and per draft of which nothing was: a low opinion does not last for ever."""


class Trust:
    """Tokens accepted over tokens promised. Not thread-safe."""

    def __init__(self, belief: float = 4.0, memory: float = _MEMORY, forgetting: float = _FORGETTING) -> None:
        """``belief``: accepted tokens' worth of it before any draft was verified. ``memory``, ``forgetting``: what is left of what
        is known, per draft that was verified, and per draft that was not."""
        self._belief, self._memory, self._forgetting = belief, memory, forgetting
        self._accepted = self._promised = 0.0

    @property
    def kept(self) -> float:
        """The share of their promises that scores have kept, at most 1."""
        return min(1.0, (self._belief + self._accepted) / (self._belief + self._promised))

    def learn(self, promised: float, accepted: int, verified: bool) -> None:
        """What a draft promised and brought, if any of it was ``verified``."""
        memory = self._memory if verified else self._forgetting
        self._accepted = memory * self._accepted + (accepted if verified else 0)
        self._promised = memory * self._promised + (promised if verified else 0.0)
