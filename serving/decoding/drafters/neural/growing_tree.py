"""A tree of candidates that grows by path probability and is cut to its best nodes (EAGLE-2, Li et al. 2024, section 4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.tree_paths import path_along

ROOT = -1
"""The parent of the first nodes: the last token of the text."""
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class GrowingTree:
    """Candidate nodes of one request. Not thread-safe.

    Attributes:
        tokens: int64[n].
        parents: int64[n]. A parent stands before its children.
        depths: int64[n], 1 for children of the root.
        values: float64[n], the probability that a node's path is accepted. A child's value is at most its parent's.
        expanded: bool[n], whether a node was expanded.
    """

    def __init__(self) -> None:
        self.tokens = np.empty(0, np.int64)
        self.parents = np.empty(0, np.int64)
        self.depths = np.empty(0, np.int64)
        self.values = np.empty(0, np.float64)
        self.expanded = np.empty(0, np.bool_)

    def __len__(self) -> int:
        return len(self.tokens)

    def depths_below(self, nodes: Ints) -> Ints:
        """The depth of the children of ``nodes``."""
        return np.where(nodes < 0, 0, self.depths[nodes] if len(self) else 0) + 1

    def expand(self, nodes: Ints, tokens: Ints, chances: Floats) -> None:
        """Add the children of ``nodes`` (``ROOT`` for the root).

        ``tokens``: int64[w, k], the children of each node. ``chances``: float64[w, k], their conditional acceptance probabilities.
        The chances of one parent's children are scaled down if their sum exceeds 1.
        """
        width, level = tokens.shape[1], self.depths_below(nodes)
        above = np.where(nodes < 0, 1.0, self.values[nodes] if len(self) else 1.0)
        shares = chances / np.maximum(1.0, chances.sum(1, keepdims=True))
        self.expanded[nodes[nodes >= 0]] = True
        self.tokens = np.concatenate([self.tokens, tokens.ravel()])
        self.parents = np.concatenate([self.parents, np.repeat(nodes, width)])
        self.depths = np.concatenate([self.depths, np.repeat(level, width)])
        self.values = np.concatenate([self.values, (above[:, None] * shares).ravel()])
        self.expanded = np.concatenate([self.expanded, np.zeros(tokens.size, np.bool_)])

    def best_leaves(self, count: int, max_depth: int, deepest: bool = False, kept: int | None = None) -> Ints:
        """int64[k], up to ``count`` leaves of the highest values, in ascending order of index. Leaves of value NaN are skipped.

        Args:
            max_depth: leaves at this depth or deeper are skipped.
            deepest: whether to take leaves of the deepest level only, as in EAGLE-2.
            kept: the number of nodes to propose. Leaves whose children cannot be among the best ``kept`` nodes are skipped.
        """
        leaves = np.flatnonzero(~self.expanded & (self.depths < max_depth) & ~np.isnan(self.values))
        if deepest and len(leaves):
            leaves = leaves[self.depths[leaves] == self.depths.max()]
        if kept is not None and len(self) >= kept > 0:
            leaves = leaves[self.values[leaves] > np.partition(self.values, -kept)[-kept]]
        return np.sort(leaves[np.argsort(-self.values[leaves], kind="stable")[:count]])

    def best(self, max_nodes: int, source: int) -> DraftTree:
        """The ``max_nodes`` nodes of highest value as a draft tree, marked with the bits ``source``."""
        kept = np.argsort(-self.values, kind="stable")[:max_nodes]
        places = np.full(len(self) + 1, -1, np.int32)
        places[kept] = np.arange(len(kept), dtype=np.int32)
        return DraftTree(
            self.tokens[kept].astype(np.int32),
            places[self.parents[kept]],  # ROOT is the index -1, and the last entry stays -1
            self.values[kept].astype(np.float32),
            np.full(len(kept), source, np.uint32),
        )

    def ancestors(self, nodes: Ints) -> list[list[int]]:
        """The path from each of ``nodes`` up to the first level."""
        paths = []
        for node in nodes.tolist():
            path = []
            while node != ROOT:
                path.append(node)
                node = int(self.parents[node])
            paths.append(path)
        return paths

    def follow(self, tokens: npt.NDArray[np.integer]) -> Ints:
        """int64[k], the nodes on the longest path from the root that agrees with ``tokens``."""
        return path_along(self.tokens, self.parents, tokens)
