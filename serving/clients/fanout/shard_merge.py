"""Merges the draft trees of shards into the tree of all of them, with exact counts.

A node may be frequent in the sum of the shards, but missing in the top nodes of a shard. So missing counts are bounded, and a
shard is asked for a count only if the bounds leave the result open. This is the three-phase uniform threshold algorithm (Cao and
Wang 2004), a threshold algorithm (Fagin et al. 2003) with a fixed number of rounds. A path's count never exceeds the
count of its beginning, so each answer is a tree.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np

from suffolk.datastore.draft_tree import RETRIEVED, DraftTree
from suffolk.datastore.tree_paths import Paths

_Place = tuple[int, int, tuple[int, ...]]
"""The place of a node in the order of drafts: falling count, depth, path."""


class ShardMerge:
    """The nodes that the shards of one query have sent, and bounds of the counts that are still missing. Not thread-safe.

    Attributes:
        match_length, match_count: the match, and its occurrences in all these shards.
    """

    def __init__(self, trees: Mapping[int, DraftTree], max_nodes: int) -> None:
        """``trees``: for each shard, its draft of up to ``max_nodes`` nodes. All have the same match."""
        self.match_length = next(iter(trees.values())).match_length
        self.match_count = sum(tree.match_count for tree in trees.values())
        self._max_nodes = max_nodes
        self._tokens: list[int] = []
        self._parents: list[int] = []  # a parent comes before its children
        self._sums: list[int] = []  # the known occurrences of each node
        self._places: dict[tuple[int, int], int] = {}  # (parent, token) -> node
        self._counts: dict[int, dict[int, int]] = {shard: {} for shard in trees}  # shard -> node -> count
        self._floors: dict[int, int] = {}  # shard -> upper bound of the counts that the shard has not sent
        for shard, tree in trees.items():
            self.add(shard, tree, max_nodes, 1)

    def add(self, shard: int, tree: DraftTree, max_nodes: int, least: int) -> bool:
        """Add a shard's nodes of at least ``least`` occurrences. The shard sent up to ``max_nodes`` of these.

        Returns whether the shard sent all of them.
        """
        assert tree.counts is not None
        counts = tree.counts.tolist()
        full = len(counts) >= max_nodes > 0
        self._floors[shard] = counts[-1] if full else least - 1
        nodes = self._nodes(tree.tokens.tolist(), tree.parents.tolist())
        self._learn(shard, nodes, counts)
        return not full

    def add_counts(self, shard: int, paths: Paths, counts: Sequence[int]) -> None:
        """Add the counts that a shard has for nodes."""
        nodes = self._nodes(paths.tokens.tolist(), paths.parents.tolist())
        self._learn(shard, nodes, counts)

    def threshold(self) -> tuple[int, list[int]]:
        """The count from which shards must list all nodes, and the shards that have not done so.

        ``max_nodes`` nodes have the sum S or more. A node that no shard has sent reaches S only if it occurs S / shards
        times in some shard.
        """
        open_shards = [shard for shard, floor in self._floors.items() if floor > 0]
        if not open_shards or not self._max_nodes:
            return 1, []
        least = max(1, -(-self._cut() // len(open_shards)))
        return least, [shard for shard in open_shards if self._floors[shard] >= least]

    def missing(self) -> dict[int, Paths]:
        """By shard, the nodes that may be in the result but whose count in this shard is unknown, with the nodes above
        them."""
        bounds = {shard: self._bounds(shard) for shard in self._counts}
        cut = max(1, self._cut())
        totals = [sum(each) for each in zip(*bounds.values(), strict=True)]
        wanted = [node for node, total in enumerate(totals) if total >= cut]
        found = {}
        for shard, counts in self._counts.items():
            if nodes := {node for node in wanted if node not in counts and bounds[shard][node] > 0}:
                found[shard] = self._paths(nodes)
        return found

    def result(self, partial: bool) -> DraftTree:
        """The ``max_nodes`` best nodes in the order of drafts. Unknown counts are taken as 0."""
        cut = max(1, self._cut())
        kept: dict[int, _Place] = {}
        root: _Place = (-self.match_count, 0, ())
        for node, (total, parent, token) in enumerate(zip(self._sums, self._parents, self._tokens, strict=True)):
            above = root if parent < 0 else kept.get(parent)
            if above is not None and total >= cut:
                kept[node] = (max(-total, above[0]), above[1] + 1, (*above[2], token))
        order = sorted(kept, key=kept.__getitem__)[: self._max_nodes]
        numbers = {node: number for number, node in enumerate(order)}
        counts = np.array([-kept[node][0] for node in order], np.uint64)
        return DraftTree(
            np.array([self._tokens[node] for node in order], np.int32),
            np.array([numbers.get(self._parents[node], -1) for node in order], np.int32),
            (counts / max(1, self.match_count)).astype(np.float32),
            np.full(len(order), RETRIEVED, np.uint32),
            counts,
            self.match_length,
            self.match_count,
            partial,
        )

    def _nodes(self, tokens: Sequence[int], parents: Sequence[int]) -> list[int]:
        """The numbers of the nodes of a tree. New ones are added."""
        nodes: list[int] = []
        for token, parent in zip(tokens, parents, strict=True):
            above = nodes[parent] if parent >= 0 else -1
            node = self._places.setdefault((above, token), len(self._tokens))
            if node == len(self._tokens):
                self._tokens.append(token)
                self._parents.append(above)
                self._sums.append(0)
            nodes.append(node)
        return nodes

    def _learn(self, shard: int, nodes: Sequence[int], counts: Sequence[int]) -> None:
        known = self._counts[shard]
        for node, count in zip(nodes, counts, strict=True):
            self._sums[node] += count - known.get(node, 0)
            known[node] = count

    def _bounds(self, shard: int) -> list[int]:
        """The largest count that each node may have in ``shard``."""
        counts, floor = self._counts[shard], self._floors[shard]
        bounds: list[int] = []
        for node, parent in enumerate(self._parents):
            count = counts.get(node)
            bounds.append(min(floor, floor if parent < 0 else bounds[parent]) if count is None else count)
        return bounds

    def _paths(self, nodes: set[int]) -> Paths:
        """``nodes`` and the nodes above them as a tree."""
        for node in list(nodes):
            while (node := self._parents[node]) >= 0 and node not in nodes:
                nodes.add(node)
        order = sorted(nodes)
        numbers = {node: number for number, node in enumerate(order)}
        return Paths(
            np.array([self._tokens[node] for node in order], np.int32),
            np.array([numbers.get(self._parents[node], -1) for node in order], np.int32),
        )

    def _cut(self) -> int:
        """The sum that ``max_nodes`` nodes reach; 0 if there are fewer nodes."""
        if len(self._sums) < self._max_nodes or not self._max_nodes:
            return 0
        return heapq.nlargest(self._max_nodes, self._sums)[-1]
