"""One request as the draft model sees it: what it has read, and the tree that it grows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from serving.decoding.drafter import DraftRequest
from serving.decoding.sampler import Sampler
from serving.decoding.tree_layout import TreeLayout
from serving.drafters.neural.evidence import evidence
from serving.drafters.neural.growing_tree import ROOT, Floats, GrowingTree, Ints
from serving.drafters.neural.own_draws import scores


class Text:
    """A request's place in the draft model's cache, and its tree, some of whose nodes have rows there. Not thread-safe.

    Attributes:
        request: as of the last ``begin``; ``slot``: its place in the cache.
        pending: tokens that the draft model has not read.
        tree: grown since the last ``begin``.
        sampled: whether the target draws at a temperature above 0.
    """

    def __init__(self, request: DraftRequest, slot: int, sampler: Sampler) -> None:
        self.slot = slot
        self.sampled = request.settings.temperature > 0
        self._sampler = sampler
        self.begin(request, 0)

    def begin(self, request: DraftRequest, cached: int) -> None:
        """A new step: ``cached`` of the request's tokens are read."""
        self.request = request
        self.pending = len(request.tokens) - cached
        self.tree = GrowingTree()
        self._own = np.empty(0, np.float64)
        self._drafted: list[int] = []  # the nodes with rows, in order

    @staticmethod
    def root() -> Ints:
        return np.array([ROOT], np.int64)

    def depths_below(self, nodes: Ints) -> Ints:
        """The depth that children of ``nodes`` have."""
        return np.where(nodes < 0, 0, self.tree.depths[nodes] if len(self.tree) else 0) + 1

    def expand(self, nodes: Ints, tokens: Ints, own: Floats, chances: Floats) -> None:
        """As ``GrowingTree.expand``; ``own``: the draft model's own probabilities."""
        self.tree.expand(nodes, tokens, chances)
        self._own = np.concatenate([self._own, own.ravel()])

    def lay_out(self, nodes: Ints) -> TreeLayout:
        """The rows of a pass over ``nodes``, none of them above another, behind those that passes have read before."""
        earlier = np.asarray(self._drafted, np.int64)
        above = self.tree.ancestors(nodes)
        visible = np.zeros((len(nodes), len(earlier) + len(nodes)), np.bool_)
        for row, path in enumerate(above):
            visible[row, : len(earlier)] = np.isin(earlier, path)
            visible[row, len(earlier) + row] = True
        layout = TreeLayout(
            self.tree.tokens[nodes], self.tree.depths[nodes] - 1, visible, self.tree.depths[earlier] - 1
        )
        self._drafted += nodes.tolist()
        return layout

    def scores(self, nodes: Ints, logits: torch.Tensor) -> torch.Tensor:
        """float[nodes, vocab], what the request's own way to draw makes of ``logits``, its noise included."""
        paths = [self.tree.tokens[path[::-1]] for path in self.tree.ancestors(nodes)]
        return scores(self._sampler, self.request, paths, logits)

    def evidence(self, tokens: npt.NDArray[np.int32]) -> Iterator[tuple[Floats, int, npt.NDArray[np.bool_]]]:
        """For each node on the path of the target's ``tokens``: its children's own probabilities, best first, their depth, and which
        of them the target took."""
        return evidence(self.tree.tokens, self.tree.parents, self._own, tokens)

    def kept_rows(self, tokens: npt.NDArray[np.int32]) -> Ints:
        """Which rows behind the text's the target's ``tokens`` make part of it."""
        rows = []
        for node in self.tree.follow(tokens[:-1]).tolist():  # the last is read with the next draft
            if node not in self._drafted:
                break
            rows.append(self._drafted.index(node))
        return np.asarray(rows, np.int64)
