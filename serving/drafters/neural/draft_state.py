"""One request as a neural drafter sees it: what it has read, and the tree that it grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.drafters.calibration.by_class import ByClass
from suffolk.serving.drafters.calibration.confidence import Confidence
from suffolk.serving.drafters.calibration.evidence import evidence, learn_evidence
from suffolk.serving.drafters.neural.coupled_sampling import own_sampler, scores
from suffolk.serving.drafters.neural.growing_tree import ROOT, Floats, GrowingTree, Ints
from suffolk.serving.drafters.neural.pay import Pay
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.model.tree_layout import TreeLayout, chain
from suffolk.serving.engine.policy.prefill_budget import PrefillBudget

LEFT_OVER = 16
"""Tokens that steps without drafts leave unread, and that the next pass takes along; more at once are a prompt."""


class Text:
    """A request's place in the drafter's cache, and its tree, some of whose nodes have rows there. Not thread-safe.

    Attributes:
        request: as of the last ``begin``; ``slot``: its place in the cache.
        deepest: depth that its tree may have: below that no node can be accepted.
        pending: tokens that the drafter has not read.
        tree: grown since the last ``begin`` or ``forget``.
        sampled: whether the target draws at a temperature above 0.
    """

    def __init__(self, request: DraftRequest, slot: int, vocab_size: int, device: torch.device) -> None:
        """``vocab_size``: of the ids that may be drafted; ``device``: of the drafter's logits."""
        self.slot = slot
        self.sampled = request.settings.temperature > 0
        self._sampler = own_sampler(request.settings, vocab_size, device)
        self.begin(request, 0)

    def begin(self, request: DraftRequest, cached: int) -> None:
        """A new step: ``cached`` of the request's tokens are read."""
        self.request, self.deepest = request, request.room
        self.pending = len(request.tokens) - cached
        self.forget()

    def forget(self) -> None:
        """Drop the tree of the step before."""
        self.tree = GrowingTree()
        self._own = np.empty(0, np.float64)
        self._drafted: list[int] = []  # the nodes with rows, in order

    def read(self, budget: PrefillBudget) -> TreeLayout:
        """The rows of a pass over as many of its pending tokens as ``budget`` has, perhaps none: they are no longer pending."""
        begin = len(self.request.tokens) - self.pending
        size = budget.take(self.pending)
        self.pending -= size
        return chain(self.request.tokens[begin : begin + size].astype(np.int64))

    @staticmethod
    def root() -> Ints:
        return np.array([ROOT], np.int64)

    def depths_below(self, nodes: Ints) -> Ints:
        """The depth that children of ``nodes`` have."""
        return np.where(nodes < 0, 0, self.tree.depths[nodes] if len(self.tree) else 0) + 1

    def expand(self, nodes: Ints, tokens: Ints, own: Floats, chances: Floats) -> None:
        """As ``GrowingTree.expand``; ``own``: the drafter's own probabilities."""
        self.tree.expand(nodes, tokens, chances)
        self._own = np.concatenate([self._own, own.ravel()])

    def lay_out(self, nodes: Ints) -> TreeLayout:
        """The rows of a pass over ``nodes``, none of them above another, behind those that passes have read before. To be followed
        by ``have_read`` once it is made."""
        earlier = np.asarray(self._drafted, np.int64)
        above = self.tree.ancestors(nodes)
        visible = np.zeros((len(nodes), len(earlier) + len(nodes)), np.bool_)
        for row, path in enumerate(above):
            visible[row, : len(earlier)] = np.isin(earlier, path)
            visible[row, len(earlier) + row] = True
        return TreeLayout(self.tree.tokens[nodes], self.tree.depths[nodes] - 1, visible, self.tree.depths[earlier] - 1)

    def have_read(self, nodes: Ints) -> None:
        """A pass over ``nodes`` was made: only now do they have rows, which may become part of the text's."""
        self._drafted += nodes.tolist()

    def rows_of(self, nodes: Ints) -> Ints:
        """Which of the rows behind the text's, counted from 0, passes have read ``nodes`` into; -1 for ``ROOT``."""
        return np.array([-1 if node == ROOT else self._drafted.index(node) for node in nodes.tolist()], np.int64)

    def scores(self, nodes: Ints, logits: torch.Tensor) -> torch.Tensor:
        """float[nodes, vocab], what the request's own way to draw makes of ``logits``, its noise included."""
        paths = [self.tree.tokens[path[::-1]] for path in self.tree.ancestors(nodes)]
        return scores(self._sampler, self.request, paths, logits)

    def learn(self, tokens: npt.NDArray[np.int32], confidence: ByClass[Confidence], pay: Pay) -> None:
        """The target's ``tokens`` followed: let ``confidence`` and ``pay`` know which candidates were right."""
        found = list(evidence(self.tree.tokens, self.tree.parents, self._own, tokens))  # candidates come best first
        learn_evidence(confidence, self.request.request_class, self.sampled, found)
        for _, _, taken in found:
            pay.learn(bool(taken[0]))

    def kept_rows(self, tokens: npt.NDArray[np.int32]) -> Ints:
        """Which rows behind the text's the target's ``tokens`` make part of it."""
        rows = []
        for node in self.tree.follow(tokens[:-1]).tolist():  # the last is read with the next draft
            if node not in self._drafted:
                break
            rows.append(self._drafted.index(node))
        return np.asarray(rows, np.int64)


@torch.inference_mode()
def add_children(
    texts: Sequence[Text], nodes: Sequence[Ints], logits: torch.Tensor, children: int, confidence: ByClass[Confidence]
) -> None:
    """Give the ``nodes`` of each text their ``children`` best candidates; ``logits`` float[nodes of all, vocab]."""
    if not texts:
        return
    rows = torch.split(logits, [len(each) for each in nodes])
    found = torch.cat([text.scores(each, own) for text, each, own in zip(texts, nodes, rows, strict=True)])
    best = found.softmax(-1).topk(min(children, logits.shape[1]))
    own, tokens = best.values.double().cpu().numpy(), best.indices.cpu().numpy()
    begin = 0
    for text, each in zip(texts, nodes, strict=True):
        part = slice(begin, begin + len(each))
        begin += len(each)
        depths = text.depths_below(each)[:, None]
        chances = confidence[text.request.request_class].chances(own[part], depths, text.sampled)
        text.expand(each, tokens[part], own[part], chances)
