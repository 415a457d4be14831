"""Merges draft trees whose scores are on one scale (csrc/drafting/merge.h)."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore import _native
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.registry import pool_weights

NAMED = 64
"""Nodes that a drafter should name, if fewer are to be proposed: what it thinks of other sources' tokens counts too."""


def merge(trees: Sequence[DraftTree], max_nodes: int) -> DraftTree:
    """The trie of all ``trees``, sorted by falling score with parents first, cut to ``max_nodes``; one tree is sorted and cut.

    A path that several propose is one node with all their marks. Its chance behind its parent is pooled from what all sources say
    there, those that propose other tokens included; its score is the product of these chances along the path. So give raw trees,
    each of one source: a merge does not remember who said what.

    Raises:
        InvalidArgument: one is no tree, or a score is not within 0..1 or above its parent's; or ``max_nodes`` is negative.
    """
    columns = [(tree.tokens, tree.parents, tree.scores, tree.sources) for tree in trees]
    return DraftTree(*_native.merge_trees(columns, pool_weights(), max_nodes))
