"""Drafters whose trees have scores on one scale, so that they can be merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from datastore.draft_tree import DraftTree
from serving.decoding.drafter import Drafter, DraftRequest
from serving.drafters.merge import merge
from serving.drafters.retrieved import Ids


@runtime_checkable
class ScoringDrafter(Drafter, Protocol):
    """A drafter whose ``propose`` is the merge of what ``scored`` returns."""

    def scored(self, requests: Sequence[DraftRequest]) -> list[list[DraftTree]]:
        """Each request's trees with calibrated scores, parents first but not sorted."""
        ...

    def behind(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        """After ``scored``: for each request the trees of its text with each of its ``paths`` at the end, in their order."""
        ...


def propose_scored(drafter: ScoringDrafter, requests: Sequence[DraftRequest]) -> list[DraftTree]:
    """What ``drafter`` proposes alone: for each request the merge of its scored trees."""
    found = drafter.scored(requests)
    return [merge(trees, request.max_nodes) for request, trees in zip(requests, found, strict=True)]
