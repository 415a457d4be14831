"""The interface of retrieval drafters. Their trees have calibrated scores, so they are merged (csrc/drafting/merge.h)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest


def merge(trees: Sequence[DraftTree], max_nodes: int) -> DraftTree:
    """The trie of all ``trees``, sorted by falling score with parents first, cut to ``max_nodes``.

    A path that several sources propose is one node with all their source bits, and the highest of their probabilities after its
    parent. A node's score is the product of these probabilities along its path.

    Raises:
        InvalidArgument: a tree is not valid, a score is not within 0..1 or is above its parent's, or ``max_nodes`` is negative.
    """
    return merge_all([ScaledDrafts(_native.Drafts([trees]), [0], [1.0])], [max_nodes])[0]


class ScaledDrafts(NamedTuple):
    """The trees of one source: of the requests at ``places`` in a step. ``factors``: of their scores, in 0..1."""

    drafts: _native.Drafts
    places: Sequence[int]
    factors: Sequence[float]


def merge_all(parts: Sequence[ScaledDrafts], max_nodes: Sequence[int]) -> Sequence[DraftTree]:
    """``merge`` of the trees of all ``parts``: a tree for each entry of ``max_nodes``. Raises as ``merge``."""
    return _native.merge(parts, max_nodes)


def as_drafts(trees: Sequence[Sequence[DraftTree]]) -> _native.Drafts:
    """``trees`` without a copy if they are in C++ already."""
    return trees if isinstance(trees, _native.Drafts) else _native.Drafts(trees)


@runtime_checkable
class RetrievalSource(Drafter, Protocol):
    """A drafter whose ``propose`` merges the trees of ``draft``."""

    def draft(self, requests: Sequence[DraftRequest]) -> Sequence[Sequence[DraftTree]]:
        """The trees of each request with calibrated scores: parents before children, not sorted by score.

        ``_native.Drafts`` take the least time, because no object is made for each tree.
        """
        ...

    def draft_after(self, requests: Sequence[DraftRequest], paths: Sequence[Sequence[Ids]]) -> list[list[DraftTree]]:
        """One tree for each path of each request: the draft for the request's text with the path appended.

        Called after ``draft`` in the same step.
        """
        ...


def propose_merged(drafter: RetrievalSource, requests: Sequence[DraftRequest]) -> Sequence[DraftTree]:
    """Draft with ``drafter``, and merge its trees into one tree per request."""
    found, size = as_drafts(drafter.draft(requests)), len(requests)
    return merge_all([ScaledDrafts(found, range(size), [1.0] * size)], [each.max_nodes for each in requests])
