"""Flattens draft trees for hosts: one chain, or a masked tree of fixed width."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree

Masks = npt.NDArray[np.bool_]
Tokens = npt.NDArray[np.int32]


def best_chain(tree: DraftTree, most: int) -> DraftTree:
    """Return the path of ``tree`` with the highest expected number of accepted tokens, as a chain of up to ``most`` nodes.

    A node's score is the probability that its path is accepted. The expected number of a chain is the sum of its
    scores.
    """
    parents, scores = tree.parents.tolist(), tree.scores.tolist()
    depths: list[int] = []
    for parent in parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    values = [0.0] * (len(parents) + 1)  # largest sum below each node; the last entry is for the root
    follow = [-1] * (len(parents) + 1)
    for node in range(len(parents) - 1, -1, -1):  # children come after their parents
        value, parent = scores[node] + values[node], parents[node]
        if depths[node] <= most and value > values[parent]:
            values[parent], follow[parent] = value, node
    path = []
    node = follow[-1]
    while node >= 0:
        path.append(node)
        node = follow[node]
    kept = np.asarray(path, np.intp)
    before = np.arange(-1, len(path) - 1, dtype=np.int32)
    return DraftTree(tree.tokens[kept], before, tree.scores[kept], tree.sources[kept])


def masked_tree(tree: DraftTree, last: int, width: int) -> tuple[Tokens, Masks]:
    """Return the first ``width - 1`` nodes of ``tree`` after node 0, which is the text's ``last`` token.

    Returns:
        int32[width], tokens with parents before children, and bool[width, width], whether a node (row) attends to
        another: itself, its ancestors and node 0. Unused nodes have token 0 and are children of node 0.
    """
    nodes = tree.head(width - 1)
    tokens = np.zeros(width, np.int32)
    tokens[0] = last
    tokens[1 : len(nodes) + 1] = nodes.tokens
    mask = np.eye(width, dtype=np.bool_)
    mask[:, 0] = True
    for node, parent in enumerate(nodes.parents.tolist(), 1):
        if parent >= 0:
            mask[node] |= mask[parent + 1]
    return tokens, mask
