"""Buffers the target's hidden states of one request until the head reads them."""

from __future__ import annotations

import torch


class FeatureBuffer:
    """A request's slot, its unread hidden states, and the head's own hidden states. Not thread-safe.

    Attributes:
        slot: its slot in the head's cache; None if all were taken. Then no hidden states are kept.
        received: the number of tokens whose hidden states have come.
        lost: whether hidden states were dropped. The request then gets no more drafts.
        states: float[1 + drafted, hidden], the head's hidden states of the text's last pair and of the drafted nodes.
    """

    def __init__(self, slot: int | None) -> None:
        self.slot = slot
        self.received = 0
        self.lost = slot is None
        self.states = torch.empty(0)
        self._waiting: list[torch.Tensor] = []

    def add(self, features: torch.Tensor, capacity: int) -> None:
        """Keep ``features`` float[k, layers, width] of the next k tokens, unless the text exceeds ``capacity`` tokens."""
        self.received += len(features)
        if self.received > capacity:
            self.lost = True
            self._waiting = []
        elif not self.lost and len(features):
            self._waiting.append(features)

    def take(self, count: int) -> torch.Tensor:
        """float[count, layers, width], the oldest buffered hidden states. REQUIRES: ``count`` are buffered."""
        waiting = self._waiting[0] if len(self._waiting) == 1 else torch.cat(self._waiting)
        self._waiting = [waiting[count:]] if len(waiting) > count else []
        return waiting[:count]

    def put_back(self, features: torch.Tensor) -> None:
        """Undo the last ``take``, after a pass that failed."""
        self._waiting.insert(0, features)
