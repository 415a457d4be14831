"""From what a source found to the probability that the target follows it: learned while decoding.

A count ratio of 1 at a match of two tokens is no probability of 1, and the same ratio means different things in a corpus and
in the request's own text. So each source counts, per kind of node, how often the target took a node whose parent it took.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from datastore.draft_tree import DraftTree

Floats = npt.NDArray[np.float64]

_MATCH_EDGES = np.array([2, 3, 4, 6, 9, 14])
_COUNT_EDGES = np.array([2, 8, 64])
_DEPTH_EDGES = np.array([2, 3, 5])
_SHARE_EDGES = np.array([0.02, 0.05, 0.12, 0.25, 0.45, 0.7, 0.95])
_SHAPE = tuple(len(edges) + 1 for edges in (_MATCH_EDGES, _SHARE_EDGES, _COUNT_EDGES, _DEPTH_EDGES))
_STRENGTH = 40.0
"""How many observations the estimate one level up is worth."""


@dataclass(frozen=True, slots=True)
class Prior:
    """log-odds of acceptance before anything is learned: linear in log(match length), log-odds of the share, log(parent's
    count) and log(depth)."""

    constant: float
    match: float
    share: float
    count: float
    depth: float


class Calibrator:
    """P(node accepted | parent accepted) by match length, share, count and depth, for one source. Not thread-safe.

    A fine table leans on a coarse one (match length and share), which leans on the prior; old evidence fades with ``decay``
    per observed tree.
    """

    def __init__(self, prior: Prior, decay: float = 0.999) -> None:
        self._prior = prior
        self._decay = decay
        self._fine = np.zeros((2, *_SHAPE))
        self._coarse = np.zeros((2, *_SHAPE[:2]))

    def score(self, tree: DraftTree) -> npt.NDArray[np.float32]:
        """float32[n], the estimated probability that each node's whole path is accepted; a child's never exceeds its parent's."""
        if not len(tree):
            return np.empty(0, np.float32)
        cells, prior = self._features(tree)
        hits, seen = self._coarse[:, cells[0], cells[1]]
        coarse = (hits + _STRENGTH * prior) / (seen + _STRENGTH)
        hits, seen = self._fine[:, cells[0], cells[1], cells[2], cells[3]]
        chances = _share_out((hits + _STRENGTH * coarse) / (seen + _STRENGTH), tree.parents)
        return _along_paths(chances, tree.parents).astype(np.float32)

    def learn(self, tree: DraftTree, tokens: npt.NDArray[np.int32]) -> None:
        """Count what the target's ``tokens`` say about ``tree``: only nodes whose parent's path they contain are evidence."""
        if not len(tree):
            return
        tried, taken = evidence(tree, tokens)
        cells, _ = self._features(tree)
        tables = ((self._coarse, 2), (self._fine, 4))
        for table, axes in tables:
            table *= self._decay
            np.add.at(table[1], tuple(cell[tried] for cell in cells[:axes]), 1.0)
            np.add.at(table[0], tuple(cell[taken] for cell in cells[:axes]), 1.0)

    def _features(self, tree: DraftTree) -> tuple[tuple[npt.NDArray[np.int64], ...], Floats]:
        """Each node's table cell and prior probability."""
        size = len(tree)
        depths = tree.depths()
        counts = np.ones(size) if tree.counts is None else np.maximum(tree.counts.astype(np.float64), 1.0)
        roots = tree.parents < 0
        above = np.where(roots, max(1.0, float(tree.match_count)), counts[tree.parents])
        share = np.minimum(counts / above, 1.0)
        match = max(1, tree.match_length)
        cells = (
            np.full(size, np.searchsorted(_MATCH_EDGES, match, "right")),
            np.searchsorted(_SHARE_EDGES, share, "right"),
            np.searchsorted(_COUNT_EDGES, above, "right"),
            np.searchsorted(_DEPTH_EDGES, depths, "right"),
        )
        prior = self._prior
        odds = (
            prior.constant
            + prior.match * np.log(match)
            + prior.share * np.log((share * above + 0.3) / (above - share * above + 0.3))
        )
        odds += prior.count * np.log(above) + prior.depth * np.log(depths)
        return cells, 1.0 / (1.0 + np.exp(-odds))


def evidence(tree: DraftTree, tokens: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(nodes whose parent's path is in ``tokens``, those of them that are the next token): what was tried and what taken."""
    tried: list[npt.NDArray[np.int64]] = []
    taken: list[int] = []
    node = -1
    for token in tokens:
        children = np.flatnonzero(tree.parents == node)
        tried.append(children)
        hits = children[tree.tokens[children] == token]
        if not len(hits):
            break
        node = int(hits[0])
        taken.append(node)
    return np.concatenate(tried) if tried else np.empty(0, np.int64), np.asarray(taken, np.int64)


def _share_out(chances: Floats, parents: npt.NDArray[np.int32]) -> Floats:
    """``chances`` scaled so that the children of one node sum to at most 1: the target takes one of them."""
    sums = np.bincount(parents + 1, weights=chances, minlength=len(parents) + 1)
    return np.asarray(chances / np.maximum(1.0, sums[parents + 1]), np.float64)


def _along_paths(chances: Floats, parents: npt.NDArray[np.int32]) -> Floats:
    """Each node's product of ``chances`` from the top down to it."""
    products = np.append(chances, 1.0)  # the last entry is where -1 points
    ancestors = np.append(parents, np.int32(-1))
    while ancestors.max() >= 0:  # each round looks twice as far up
        products *= products[ancestors]
        ancestors = ancestors[ancestors]
    return products[:-1]
