"""A drafter with random drafts and the highest scores, to measure the largest loss by drafting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.engine.loop.drafter import DraftRequest

NAME = "useless"
SOURCE = 1 << 31
_CHAINS = 8
"""Roots of a tree; nodes are dealt to them in turn."""


class UselessDrafter:
    """Random chains side by side, each node with score 1 and a mark that no other drafter has. Not thread-safe."""

    name = NAME

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._generator = np.random.default_rng(0)
        self._calls = 0

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        self._calls += 1
        return [self._draft(request.max_nodes) for request in requests]

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        pass

    def release(self, request_id: int) -> None:
        pass

    def stats(self) -> dict[str, float]:
        return {"calls": self._calls, "failed": 0}

    def close(self) -> None:
        pass

    def _draft(self, size: int) -> DraftTree:
        tokens = self._generator.integers(0, self._vocab_size, size, dtype=np.int32)
        parents = np.maximum(np.arange(size, dtype=np.int32) - np.int32(_CHAINS), np.int32(-1))
        return DraftTree(tokens, parents, np.ones(size, np.float32), np.full(size, SOURCE, np.uint32))
