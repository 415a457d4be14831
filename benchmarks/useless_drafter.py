"""A drafter whose drafts are worthless and whose scores promise everything: what drafting may cost at most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from datastore.draft_tree import DraftTree
from serving.decoding.drafter import DraftRequest

NAME = "useless"


class UselessDrafter:
    """Random chains side by side, each node with score 1. Not thread-safe."""

    name = NAME

    def __init__(self, vocab_size: int, chains: int = 8) -> None:
        """``chains``: roots of a tree; its nodes are dealt to them in turn."""
        self._vocab_size = vocab_size
        self._chains = chains
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
        return {"calls": self._calls, "missed": 0}

    def close(self) -> None:
        pass

    def _draft(self, size: int) -> DraftTree:
        tokens = self._generator.integers(0, self._vocab_size, size, dtype=np.int32)
        parents = np.maximum(np.arange(size, dtype=np.int32) - np.int32(self._chains), np.int32(-1))
        return DraftTree(tokens, parents, np.ones(size, np.float32), np.zeros(size, np.uint8))
