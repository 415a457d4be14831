"""One tree from several drafters, their calibrated scores being on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from datastore.draft_tree import DraftTree
from serving.decoding.drafter import Drafter, DraftRequest
from serving.drafters.merge import merge


class ScoringDrafter(Drafter, Protocol):
    """A drafter whose ``propose`` is the merge of what ``scored`` returns."""

    def scored(self, requests: Sequence[DraftRequest]) -> list[list[DraftTree]]:
        """Each request's trees with calibrated scores, parents first but not sorted."""
        ...


class HybridDrafter:
    """Asks every drafter, merges their trees as a trie, and keeps the best nodes. Not thread-safe."""

    name = "hybrid"

    def __init__(self, drafters: Sequence[ScoringDrafter]) -> None:
        """Takes over ``drafters``: ``close`` closes them."""
        self._drafters = list(drafters)

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        found = [drafter.scored(requests) for drafter in self._drafters]
        return [
            merge([tree for trees in each for tree in trees], request.max_nodes)
            for request, *each in zip(requests, *found, strict=True)
        ]

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        for drafter in self._drafters:
            drafter.observe(request_id, tokens)

    def release(self, request_id: int) -> None:
        for drafter in self._drafters:
            drafter.release(request_id)

    def stats(self) -> dict[str, float]:
        """The drafters' counters added up, and each one's own under its name."""
        total: dict[str, float] = {}
        for drafter in self._drafters:
            for key, value in drafter.stats().items():
                for name in (key, f"{drafter.name}: {key}"):
                    total[name] = total.get(name, 0) + value
        return total

    def close(self) -> None:
        for drafter in self._drafters:
            drafter.close()
