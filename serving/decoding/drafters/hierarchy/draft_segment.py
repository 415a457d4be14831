"""The tokens that one level of a hierarchy drafts for the next level, and the queries to levels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

Floats = npt.NDArray[np.float64]
Path = tuple[int, ...]
"""Drafted tokens after a request's text, oldest first."""


@dataclass(frozen=True, slots=True)
class DraftSegment:
    """A run of drafted tokens.

    Attributes:
        tokens: the tokens, oldest first.
        draft_probs: float64[n], the level's conditional probability of each token; unused for sampled tokens.
        distribution: float64[n, vocab], the distributions that the tokens were sampled from; None if they were not sampled.
        is_cut: whether the segment ended early, at NaN logits.
    """

    tokens: Path
    draft_probs: Floats
    distribution: torch.Tensor | None = None
    is_cut: bool = False

    def __len__(self) -> int:
        return len(self.tokens)

    def __add__(self, other: DraftSegment) -> DraftSegment:
        rows = [each.distribution for each in (self, other) if each.distribution is not None]
        probs = np.concatenate([self.draft_probs, other.draft_probs])
        return DraftSegment(self.tokens + other.tokens, probs, torch.cat(rows) if rows else None)

    def head(self, size: int) -> DraftSegment:
        """The first ``size`` tokens."""
        if size >= len(self):
            return self
        rows = None if self.distribution is None else self.distribution[:size]
        return DraftSegment(self.tokens[:size], self.draft_probs[:size], rows)


EMPTY_SEGMENT = DraftSegment((), np.empty(0, np.float64))


@dataclass(frozen=True, slots=True)
class LevelQuery:
    """The next query of one request, to level number ``level``. ``draft``: the tokens that the level below drafted.

    A model returns the logits after ``path`` and after each token of ``draft``. Retrieval returns up to ``count`` tokens after
    ``path``.
    """

    level: int
    path: Path
    draft: Path = ()
    count: int = 0


LevelReply = DraftSegment | torch.Tensor | None
"""Retrieved tokens; or logits float[draft + 1, vocab]; or None if the pass was not made."""
