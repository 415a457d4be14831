"""Drafters whose trees have scores on one scale, so that they can be merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.hybrid.merge import merge
from suffolk.serving.drafters.retrieval.retrieved import Ids
from suffolk.serving.engine.loop.drafter import Drafter, DraftRequest


@runtime_checkable
class RetrievalSource(Drafter, Protocol):
    """A drafter whose ``propose`` is the merge of what ``scored`` returns."""

    def scored(self, requests: Sequence[DraftRequest]) -> list[list[DraftTree]]:
        """Each request's trees with calibrated scores, parents first but not sorted."""
        ...

    def behind(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        """After ``scored``: for each request the trees of its text with each of its ``paths`` at the end, in their order."""
        ...


def propose_scored(drafter: RetrievalSource, requests: Sequence[DraftRequest]) -> list[DraftTree]:
    """What ``drafter`` proposes alone: for each request the merge of its scored trees."""
    found = drafter.scored(requests)
    return [merge(trees, request.max_nodes) for request, trees in zip(requests, found, strict=True)]
