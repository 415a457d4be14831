"""The interface of retrieval drafters. Their trees have calibrated scores, so they can be merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.hybrid.merge import merge_all
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest


@runtime_checkable
class RetrievalSource(Drafter, Protocol):
    """A drafter whose ``propose`` merges the trees of ``draft``."""

    def draft(self, requests: Sequence[DraftRequest]) -> list[list[DraftTree]]:
        """The trees of each request with calibrated scores: parents before children, not sorted by score."""
        ...

    def draft_after(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        """One tree for each path of each request: the draft for the request's text with the path appended.

        Called after ``draft`` in the same step.
        """
        ...


def propose_merged(drafter: RetrievalSource, requests: Sequence[DraftRequest]) -> list[DraftTree]:
    """Draft with ``drafter``, and merge its trees into one tree per request."""
    found = drafter.draft(requests)
    return merge_all([[(tree, 1.0) for tree in trees] for trees in found], [each.max_nodes for each in requests])
