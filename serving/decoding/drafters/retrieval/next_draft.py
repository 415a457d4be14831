"""Predicts at which nodes the target leaves a draft tree, and extracts the next draft from a prefetched tree."""

from __future__ import annotations

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import Ids

_MOST_ENDS = 6
"""The most ends to predict."""
_LEAST = 0.02
"""The least probability of a predicted end."""


def likely_ends(tree: DraftTree) -> list[Ids]:
    """The paths, int32[depth] each, after which the target most likely leaves ``tree``, most likely first.

    The target leaves at a node if it accepts the node's path and none of its children. The root has an empty path.
    """
    chances = np.append(tree.scores.astype(np.float64), 1.0)  # the last entry is the root's: its index is -1
    np.subtract.at(chances, tree.parents, tree.scores)
    best = np.argsort(-chances, kind="stable")[:_MOST_ENDS]
    return [_path(tree, int(node) if node < len(tree) else -1) for node in best[chances[best] >= _LEAST]]


def subtree(tree: DraftTree, token: int, max_nodes: int) -> DraftTree:
    """The draft for the context of ``tree`` with ``token`` appended, one level less deep; empty if the tree lacks ``token``.

    The draft is exact. If ``token`` follows the longest match of a context, the match with ``token`` is the longest match of the
    longer context. Its draft is the subtree below ``token``. If ``tree`` was cut, the draft has the first nodes only.
    """
    if tree.counts is None:
        return DraftTree.empty()
    tops = np.flatnonzero((tree.parents == -1) & (tree.tokens == token) & (tree.counts > 0))
    if not len(tops):
        return DraftTree.empty()
    top = int(tops[0])
    places = {top: -1}  # node below ``top`` -> its index in the subtree
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
    """The tokens on the path from the root to ``node``."""
    path = []
    while node >= 0:
        path.append(int(tree.tokens[node]))
        node = int(tree.parents[node])
    return np.asarray(path[::-1], np.int32)
