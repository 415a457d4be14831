"""A drafter that returns random drafts with the highest scores, to measure the largest loss from drafting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest

NAME = "useless"
SOURCE = 1 << 31
_CHAINS = 8
"""Number of roots of a tree. The chains below them differ in length by one node at most."""


class UselessDrafter:
    """Drafts random chains side by side.

    Every node has score 1 and a source that no other drafter uses. Not thread-safe.
    """

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
