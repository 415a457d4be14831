"""The state of one request in a neural drafter, and the base class that keeps the states of all requests."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from suffolk.serving.decoding.drafters.calibration.confidence import Confidence, learn_draft
from suffolk.serving.decoding.drafters.neural.coupled_sampling import drafter_sampler, noisy_scores
from suffolk.serving.decoding.drafters.neural.growing_tree import ROOT, Floats, GrowingTree, Ints
from suffolk.serving.decoding.engine.loop.draft_stats import DraftFailures
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain
from suffolk.serving.decoding.engine.policy.expansion_policy import ExpansionPolicy

LEFT_OVER = 16
"""The most pending tokens that count as left over from steps without drafts. More pending tokens are a prompt."""
State = TypeVar("State")


class DraftState:
    """A request's slot in the drafter's cache, and the tree of this step. Some nodes have cache rows. Not thread-safe.

    Attributes:
        request: the request of the last ``begin``.
        slot: the request's slot in the cache.
        deepest: the greatest depth at which a node can still be accepted.
        pending: the number of tokens that the drafter has not read.
        tree: the tree since the last ``begin`` or ``forget``.
        sampled: whether the request samples at a temperature above 0.
    """

    def __init__(self, request: DraftRequest, slot: int, vocab_size: int, device: torch.device) -> None:
        """``vocab_size``: the number of ids that may be drafted. ``device``: the device of the drafter's logits."""
        self.slot = slot
        self.sampled = request.settings.temperature > 0
        self._sampler = drafter_sampler(request.settings, vocab_size, device)
        self.begin(request, 0)

    def begin(self, request: DraftRequest, cached: int) -> None:
        """Begin a step. The drafter has read the first ``cached`` tokens of ``request``."""
        self.request, self.deepest = request, request.room
        self.pending = len(request.tokens) - cached
        self.forget()

    def forget(self) -> None:
        """Drop the tree of the step before."""
        self.tree = GrowingTree()
        self._draft_probs = np.empty(0, np.float64)
        self._cached_nodes: list[int] = []  # in the order of their rows

    def read(self, most: int) -> TreeLayout:
        """Take up to ``most`` pending tokens, and return the rows of a pass over them."""
        begin = len(self.request.tokens) - self.pending
        size = min(self.pending, most)
        self.pending -= size
        return chain(self.request.tokens[begin : begin + size].astype(np.int64))

    def expand(self, nodes: Ints, tokens: Ints, draft_probs: Floats, chances: Floats) -> None:
        """See ``GrowingTree.expand``. ``draft_probs`` are the drafter's uncalibrated probabilities."""
        self.tree.expand(nodes, tokens, chances)
        self._draft_probs = np.concatenate([self._draft_probs, draft_probs.ravel()])

    def lay_out(self, nodes: Ints) -> TreeLayout:
        """The rows of a pass over ``nodes``, after the cached rows of earlier passes. Call ``have_read`` after the pass.

        REQUIRES: no node is an ancestor of another.
        """
        earlier = np.asarray(self._cached_nodes, np.int64)
        above = self.tree.ancestors(nodes)
        visible = np.zeros((len(nodes), len(earlier) + len(nodes)), np.bool_)
        for row, path in enumerate(above):
            visible[row, : len(earlier)] = np.isin(earlier, path)
            visible[row, len(earlier) + row] = True
        return TreeLayout(self.tree.tokens[nodes], self.tree.depths[nodes] - 1, visible, self.tree.depths[earlier] - 1)

    def have_read(self, nodes: Ints) -> None:
        """Record that ``nodes`` have cache rows after a pass."""
        self._cached_nodes += nodes.tolist()

    def rows_of(self, nodes: Ints) -> Ints:
        """The cache rows of ``nodes``, counted from the end of the text's rows; -1 for ``ROOT``."""
        rows = [-1 if node == ROOT else self._cached_nodes.index(node) for node in nodes.tolist()]
        return np.array(rows, np.int64)

    def scores(self, nodes: Ints, logits: torch.Tensor) -> torch.Tensor:
        """float[nodes, vocab], the noisy scores of ``logits`` under the request's sampling settings."""
        paths = [self.tree.tokens[path[::-1]] for path in self.tree.ancestors(nodes)]
        return noisy_scores(self._sampler, self.request, paths, logits)

    def learn(self, tokens: npt.NDArray[np.int32], confidence: Confidence, expansion: ExpansionPolicy) -> None:
        """Update ``confidence`` and ``expansion`` from the ``tokens`` that the target generated after the last draft."""
        for is_best_accepted in learn_draft(confidence, self.sampled, self.tree, self._draft_probs, tokens):
            expansion.learn(is_best_accepted)

    def kept_rows(self, tokens: npt.NDArray[np.int32]) -> Ints:
        """The cache rows of nodes on the path of ``tokens``, counted from the end of the text's rows."""
        rows = []
        for node in self.tree.follow(tokens[:-1]).tolist():  # the next draft reads the last token
            if node not in self._cached_nodes:
                break
            rows.append(self._cached_nodes.index(node))
        return np.asarray(rows, np.int64)


@torch.inference_mode()
def add_children(
    drafts: Sequence[DraftState],
    nodes: Sequence[Ints],
    logits: torch.Tensor,
    children: int,
    confidence: Confidence,
) -> None:
    """Add the ``children`` best candidates after each of ``nodes``. ``logits``: float[nodes of all drafts, vocab]."""
    if not drafts:
        return
    rows = torch.split(logits, [len(each) for each in nodes])
    found = torch.cat([draft.scores(each, part) for draft, each, part in zip(drafts, nodes, rows, strict=True)])
    best = found.softmax(-1).topk(min(children, logits.shape[1]))
    draft_probs, tokens = best.values.double().cpu().numpy(), best.indices.cpu().numpy()
    begin = 0
    for draft, each in zip(drafts, nodes, strict=True):
        part = slice(begin, begin + len(each))
        begin += len(each)
        depths = draft.tree.depths_below(each)[:, None]
        chances = confidence.chances(draft_probs[part], depths, draft.sampled)
        draft.expand(each, tokens[part], draft_probs[part], chances)


class StatefulDrafter(ABC, Generic[State]):
    """Keeps the states of requests and the free slots of a cache, and counts calls, passes and failures. Not thread-safe.

    Attributes:
        failures: its failed drafts.
    """

    def __init__(self, label: str, slots: int = 0) -> None:
        """``label``: its name in messages. ``slots``: the slots of its cache."""
        self.failures = DraftFailures(label)
        self._states: dict[int, State] = {}
        self._slots, self._free = slots, list(range(slots))
        self._calls = self._passes = 0
        self._prefill_seconds = 0.0

    def release(self, request_id: int) -> None:
        state = self._states.pop(request_id, None)
        if state is not None:
            self._released(request_id, state)

    def stats(self) -> dict[str, float]:
        return {"calls": self._calls, "passes": self._passes} | self.failures.stats()

    def close(self) -> None:
        for request_id in list(self._states):
            self.release(request_id)

    def _released(self, request_id: int, state: State) -> None:  # noqa: B027 - not every drafter keeps more
        """Free what a subclass keeps for the request besides ``state``."""

    def _has_slot(self) -> bool:
        """Whether a slot is free. Counts a failure otherwise."""
        if not self._free:
            self.failures.add("ResourceExhausted", f"all {self._slots} slots are taken")
        return bool(self._free)
