"""Predicts where the target leaves a draft tree, and cuts the next draft out of a tree that was requested for there."""

from __future__ import annotations

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.retrieval.retrieval_scorer import Ids

_MOST = 6
"""The most ends that are predicted."""
_LEAST = 0.02
"""The least probability of one."""


def likely_ends(tree: DraftTree) -> list[Ids]:
    """int32[depth] each, the paths of ``tree`` behind which the target most likely leaves it, most likely first.

    The target leaves at a node if it accepts its path and none of its children; an empty path is the root's.
    """
    chances = np.append(tree.scores.astype(np.float64), 1.0)  # the root's is the last, where index -1 is
    np.subtract.at(chances, tree.parents, tree.scores)
    best = np.argsort(-chances, kind="stable")[:_MOST]
    return [_path(tree, int(node) if node < len(tree) else -1) for node in best[chances[best] >= _LEAST]]


def subtree(tree: DraftTree, token: int, max_nodes: int) -> DraftTree:
    """The draft for the context of ``tree`` with ``token`` appended: exact, one level less deep; empty if it is unknown.

    If ``token`` follows the longest match of a context, that match with ``token`` is the longest of both, and what follows it lies
    below ``token`` in the tree. Of a tree that was cut, these are the first nodes of what follows.
    """
    if tree.counts is None:
        return DraftTree.empty()
    tops = np.flatnonzero((tree.parents == -1) & (tree.tokens == token) & (tree.counts > 0))
    if not len(tops):
        return DraftTree.empty()
    top = int(tops[0])
    places = {top: -1}  # of the nodes below ``top``, among themselves
    for node, parent in enumerate(tree.parents.tolist()):
        if parent in places:
            places[node] = len(places) - 1
    nodes = list(places)[1 : max_nodes + 1]
    count = int(tree.counts[top])
    return DraftTree(
        tree.tokens[nodes],
        np.asarray([places[parent] for parent in tree.parents[nodes].tolist()], np.int32),
        (tree.counts[nodes] / count).astype(np.float32),
        tree.sources[nodes],
        tree.counts[nodes],
        tree.match_length + 1,
        count,
    )


def _path(tree: DraftTree, node: int) -> Ids:
    """The tokens from the root down to ``node``."""
    path = []
    while node >= 0:
        path.append(int(tree.tokens[node]))
        node = int(tree.parents[node])
    return np.asarray(path[::-1], np.int32)
