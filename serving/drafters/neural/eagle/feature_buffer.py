"""The target's hidden states of one request, kept until the head reads them."""

from __future__ import annotations

import torch

from suffolk.serving.drafters.neural.draft_state import Text


class FeatureBuffer:
    """A request's slot, what has come of its hidden states, and its text once it has asked for a draft. Not thread-safe.

    Attributes:
        slot: its place in the head's cache.
        text: None before the first draft.
        followed: tokens whose hidden states have come.
        lost: whether some were not kept, after which it can have no more drafts.
        states: float[1 + drafted, hidden], of the text's last pair, and of the nodes drafted behind it.
    """

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.text: Text | None = None
        self.followed = 0
        self.lost = False
        self.states = torch.empty(0)
        self._waiting: list[torch.Tensor] = []

    def add(self, features: torch.Tensor, capacity: int) -> None:
        """Keep ``features`` float[k, layers, width] of the next k tokens; of a text of more than ``capacity`` none are kept."""
        self.followed += len(features)
        if self.followed > capacity:
            self.lost = True
            self._waiting = []
        elif not self.lost and len(features):
            self._waiting.append(features)

    def take(self, count: int) -> torch.Tensor:
        """float[count, layers, width], the oldest that were not taken; there must be as many."""
        taken: list[torch.Tensor] = []
        while count:
            part = self._waiting.pop(0)
            taken.append(part[:count])
            if len(part) > count:
                self._waiting.insert(0, part[count:])
            count -= len(taken[-1])
        return taken[0] if len(taken) == 1 else torch.cat(taken)

    def give_back(self, features: torch.Tensor) -> None:
        """The pass over what ``take`` gave last was not made: it is read again."""
        self._waiting.insert(0, features)
