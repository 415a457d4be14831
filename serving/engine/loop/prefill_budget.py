"""How much of their texts requests may read in one pass."""

from __future__ import annotations

from suffolk.serving.engine.model.language_model import PREFILL_CHUNK


class PrefillBudget:
    """Tokens that a pass may still read, of all requests together. Not thread-safe.

    Attributes:
        left: tokens, 0 or more.
    """

    def __init__(self, tokens: int = PREFILL_CHUNK) -> None:
        self.left = tokens

    def take(self, pending: int) -> int:
        """How many of a text's ``pending`` tokens to read now; they are taken off."""
        taken = min(pending, self.left)
        self.left -= taken
        return taken
