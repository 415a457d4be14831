"""The interface of retrieval drafters. Their trees have calibrated scores, so they are merged (csrc/drafting/merge.h)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest

Scaled = tuple[DraftTree, float]
"""A tree, and a factor of its scores in 0..1."""


def merge(trees: Sequence[DraftTree], max_nodes: int) -> DraftTree:
    """The trie of all ``trees``, sorted by falling score with parents first, cut to ``max_nodes``.

    A path that several sources propose is one node with all their source bits, and the highest of their probabilities after its
    parent. A node's score is the product of these probabilities along its path.

    Raises:
        InvalidArgument: a tree is not valid, a score is not within 0..1 or is above its parent's, or ``max_nodes`` is negative.
    """
    return merge_all([[(tree, 1.0) for tree in trees]], [max_nodes])[0]


def merge_all(drafts: Sequence[Sequence[Scaled]], max_nodes: Sequence[int]) -> list[DraftTree]:
    """``merge`` of the trees of each draft. Raises as ``merge``."""
    return [DraftTree(*columns) for columns in _native.merge_trees(drafts, max_nodes)]


def judge(
    drafts: Sequence[Sequence[DraftTree]], max_nodes: Sequence[int], factors: Sequence[float], least: Sequence[float]
) -> list[tuple[list[int], float, float]]:
    """What is to be expected of each draft, of trees of one source.

    Returns:
        For each draft: the first tokens of its merged tree, the sum of their scores, and the expected tokens of its best tree.
        These are of nodes whose scores are at least ``least`` after they are multiplied by the factor.
    """
    return _native.judge_trees(drafts, max_nodes, factors, least)


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
