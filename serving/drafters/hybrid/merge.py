"""Merges draft trees whose scores are on one scale (csrc/drafting/merge.h)."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree


def merge(trees: Sequence[DraftTree], max_nodes: int) -> DraftTree:
    """The trie of all ``trees``, sorted by falling score with parents first, cut to ``max_nodes``.

    A path that several sources propose is one node with all their source bits, and the highest of their probabilities after its
    parent. A node's score is the product of these probabilities along its path.

    Raises:
        InvalidArgument: a tree is not valid, a score is not within 0..1 or is above its parent's, or ``max_nodes`` is negative.
    """
    columns = [(tree.tokens, tree.parents, tree.scores, tree.sources) for tree in trees]
    return DraftTree(*_native.merge_trees(columns, max_nodes))
