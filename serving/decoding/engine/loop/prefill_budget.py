"""The budget of prompt tokens that requests read in one pass."""

from __future__ import annotations

from suffolk.serving.decoding.engine.model.language_model import PREFILL_CHUNK


class PrefillBudget:
    """The prompt tokens that one pass may read, over all requests. Not thread-safe.

    Attributes:
        left: tokens that may still be read, 0 or more.
    """

    def __init__(self, tokens: int = PREFILL_CHUNK) -> None:
        self.left = tokens

    def take(self, pending: int) -> int:
        """Take up to ``pending`` tokens from the budget; returns how many."""
        taken = min(pending, self.left)
        self.left -= taken
        return taken
