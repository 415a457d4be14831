"""What a level hands up to the level above it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

Floats = npt.NDArray[np.float64]
Path = tuple[int, ...]
"""Drafted tokens behind a request's text, oldest first."""


@dataclass(frozen=True, slots=True)
class DraftSegment:
    """A run of tokens.

    Attributes:
        tokens: in order.
        own: float64[n], how likely its level holds each of them behind those before; not looked at where they were drawn at random.
        law: float64[n, vocab], the law that each was drawn from; None for tokens that were not drawn.
        is_cut: whether its level's logits behind the last token are no numbers, so that nothing could be drawn there.
    """

    tokens: Path
    own: Floats
    law: torch.Tensor | None = None
    is_cut: bool = False

    def __len__(self) -> int:
        return len(self.tokens)

    def __add__(self, other: DraftSegment) -> DraftSegment:
        laws = [each.law for each in (self, other) if each.law is not None]
        return DraftSegment(
            self.tokens + other.tokens, np.concatenate([self.own, other.own]), torch.cat(laws) if laws else None
        )

    def head(self, size: int) -> DraftSegment:
        """The first ``size`` tokens."""
        if size >= len(self):
            return self
        return DraftSegment(self.tokens[:size], self.own[:size], None if self.law is None else self.law[:size])


NOTHING = DraftSegment((), np.empty(0, np.float64))


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request needs next of one of its levels, by number: logits behind ``path`` and behind each token of ``draft``, or, of
    retrieval, what follows ``path``, up to ``count`` tokens."""

    level: int
    path: Path
    draft: Path = ()
    count: int = 0


Answer = DraftSegment | torch.Tensor | None
"""Tokens of retrieval, logits float[draft + 1, vocab], or None: the pass is not made."""
