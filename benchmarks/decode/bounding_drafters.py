"""Drafters that bound what drafting can do: one is always wrong, and one is always right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated

USELESS, RECORDED = "useless", "recorded"
SOURCE, RECORDED_SOURCE = 1 << 31, 1 << 30
_CHAINS = 8
"""Number of roots of a tree. The chains below them differ in length by one node at most."""


class CountingDrafter:
    """Base of drafters that count their calls, and learn nothing from the generated text."""

    def __init__(self) -> None:
        self._calls = 0

    def observe(self, generated: Generated) -> None:
        pass

    def release(self, request_id: int) -> None:
        pass

    def stats(self) -> dict[str, float]:
        return {"calls": self._calls, "failed": 0}

    def close(self) -> None:
        pass


class UselessDrafter(CountingDrafter):
    """Drafts random chains side by side, to measure the largest loss from drafting.

    Every node has score 1 and a source that no other drafter uses. Not thread-safe.
    """

    name = USELESS

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self._vocab_size = vocab_size
        self._generator = np.random.default_rng(0)

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        self._calls += 1
        return [self._draft(request.max_nodes) for request in requests]

    def _draft(self, size: int) -> DraftTree:
        tokens = self._generator.integers(0, self._vocab_size, size, dtype=np.int32)
        parents = np.maximum(np.arange(size, dtype=np.int32) - np.int32(_CHAINS), np.int32(-1))
        return DraftTree(tokens, parents, np.ones(size, np.float32), np.full(size, SOURCE, np.uint32))


class RecordedDrafter(CountingDrafter):
    """Drafts the rest of a text that was generated before, like a perfect datastore.

    No drafter is faster than this one at the same costs and limits. Every node has score 1 and a source that no other drafter
    uses. Not thread-safe.
    """

    name = RECORDED

    def __init__(self) -> None:
        super().__init__()
        self._text = np.zeros(0, np.int32)

    def replay(self, prompt: Sequence[int], generated: Sequence[int]) -> None:
        """Draft along the text of ``prompt`` and ``generated`` from now on, and along no earlier text. Other texts get no draft."""
        self._text = np.asarray([*prompt, *generated], np.int32)

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        self._calls += 1
        return [self._draft(request) for request in requests]

    def _draft(self, request: DraftRequest) -> DraftTree:
        known = len(request.tokens)
        if not np.array_equal(self._text[:known], request.tokens):
            return DraftTree.empty()
        tokens = self._text[known : known + min(request.max_nodes, request.room)]
        parents = np.arange(-1, len(tokens) - 1, dtype=np.int32)
        scores, sources = np.ones(len(tokens), np.float32), np.full(len(tokens), RECORDED_SOURCE, np.uint32)
        return DraftTree(tokens, parents, scores, sources)
