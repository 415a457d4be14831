"""The budget of prompt tokens that requests read in one pass."""

from __future__ import annotations

from suffolk.serving.engine.model.language_model import PREFILL_CHUNK


class PrefillBudget:
    """Prompt tokens that a pass may still read, over all requests. Not thread-safe.

    Attributes:
        left: tokens, 0 or more.
    """

    def __init__(self, tokens: int = PREFILL_CHUNK) -> None:
        self.left = tokens

    def take(self, pending: int) -> int:
        """The number of a text's ``pending`` tokens to read now, taken from the budget."""
        taken = min(pending, self.left)
        self.left -= taken
        return taken
