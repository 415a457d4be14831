"""Buffers the target's hidden states of one request until the head reads them."""

from __future__ import annotations

import torch

from suffolk.serving.drafters.neural.draft_state import DraftState


class FeatureBuffer:
    """A request's slot, its unread hidden states, and its draft state once it has asked for a draft. Not thread-safe.

    Attributes:
        slot: its place in the head's cache.
        draft: None before the first draft.
        received: tokens whose hidden states have come.
        lost: whether some hidden states were dropped: the request gets no more drafts.
        states: float[1 + drafted, hidden], of the text's last pair, and of the drafted nodes.
    """

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.draft: DraftState | None = None
        self.received = 0
        self.lost = False
        self.states = torch.empty(0)
        self._waiting: list[torch.Tensor] = []

    def add(self, features: torch.Tensor, capacity: int) -> None:
        """Keep ``features`` float[k, layers, width] of the next k tokens; of a text of more than ``capacity`` none are kept."""
        self.received += len(features)
        if self.received > capacity:
            self.lost = True
            self._waiting = []
        elif not self.lost and len(features):
            self._waiting.append(features)

    def take(self, count: int) -> torch.Tensor:
        """float[count, layers, width], the oldest that are buffered; there must be ``count``."""
        taken: list[torch.Tensor] = []
        while count:
            part = self._waiting.pop(0)
            taken.append(part[:count])
            if len(part) > count:
                self._waiting.insert(0, part[count:])
            count -= len(taken[-1])
        return taken[0] if len(taken) == 1 else torch.cat(taken)

    def put_back(self, features: torch.Tensor) -> None:
        """Undo the last ``take``: its pass was not made."""
        self._waiting.insert(0, features)
