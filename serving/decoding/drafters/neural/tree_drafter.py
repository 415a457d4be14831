"""The base of neural drafters that grow a tree pass by pass.

Nodes are expanded by the probability of their paths (EAGLE-2, Li et al. 2024, section 4). Drafters other than EAGLE expand the best
of all leaves (SpecExec, Svirschevski et al. 2024). All requests share a pass.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.confidence import Confidence
from suffolk.serving.decoding.drafters.neural.draft_state import LEFT_OVER, DraftState, StatefulDrafter, add_children
from suffolk.serving.decoding.drafters.neural.growing_tree import ROOT, Ints
from suffolk.serving.decoding.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.decoding.engine.costs.draft_budget import mean_value
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.language_model import PREFILL_CHUNK
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout
from suffolk.serving.decoding.engine.policy.expansion_policy import ExpansionPolicy


class TreeDrafter(StatefulDrafter[DraftState]):
    """Grows a tree for each request. A pass is made only if it is worth its time. Not thread-safe.

    At a temperature above 0, candidates are scored with the target's noise (``coupled_sampling.py``).

    Attributes:
        source: the bit that marks its nodes in ``DraftTree.sources``.
    """

    source: int
    _cache: KVCache
    """Keys and values of the texts. Subclasses set it."""

    def __init__(self, bounds: TreeBounds, expansion: ExpansionPolicy, label: str, slots: int = 0) -> None:
        """``label``, ``slots``: as in ``StatefulDrafter``."""
        super().__init__(label, slots)
        self._bounds = bounds
        self._expansion = expansion
        self._confidence = Confidence()

    def calibrate(self, confidence: Confidence) -> None:
        """See ``CalibratedDrafter``."""
        self._confidence = confidence

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        self._calls += 1
        states = [self._open(request, len(requests)) for request in requests]
        self._grow([state for state in states if state is not None])
        return [
            DraftTree.empty() if state is None else state.tree.best(self._most_nodes(request), self.source)
            for request, state in zip(requests, states, strict=True)
        ]

    def observe(self, generated: Generated) -> None:
        for request_id, tokens in generated.items():
            state = self._states.get(request_id)
            if state is not None and len(state.tree):
                state.learn(tokens, self._confidence, self._expansion)
                self._keep(state, tokens)

    def stats(self) -> dict[str, float]:
        return super().stats() | {"prefill_seconds": self._prefill_seconds}

    @abstractmethod
    def _open(self, request: DraftRequest, requests: int) -> DraftState | None:
        """The request's state at the beginning of a step with ``requests`` requests; None if it gets no draft."""

    @abstractmethod
    def _read_text(
        self, states: Sequence[DraftState], layouts: list[TreeLayout], ready: Sequence[DraftState]
    ) -> torch.Tensor:
        """Make a pass over the next tokens of ``states``, and keep their cache rows.

        Returns float[ready, vocab], the logits after the texts of ``ready``, which are read to their end.
        """

    @abstractmethod
    def _read_nodes(
        self, states: Sequence[DraftState], nodes: Sequence[Ints], layouts: list[TreeLayout]
    ) -> torch.Tensor:
        """Make a pass over ``nodes`` of each tree; float[nodes of all states, vocab], the logits after them."""

    def _keep(self, state: DraftState, tokens: npt.NDArray[np.int32]) -> None:
        """Keep the cache rows of nodes that ``tokens`` accept. By default none are kept."""

    def _most_nodes(self, request: DraftRequest) -> int:
        return min(self._bounds.max_nodes, request.max_nodes)

    def _grow(self, states: Sequence[DraftState]) -> None:
        """Grow the trees of ``states`` whose texts can be read to their end in this step."""
        if not states:
            return
        most = sum(state.request.budget.model_seconds for state in states) - self._seconds(len(states), states)
        growing = self._read(states)
        for _ in range(self._bounds.max_depth - 1):
            growing, rows = self._extend(growing, most)
            most -= self._seconds(rows, growing)

    def _read(self, states: Sequence[DraftState]) -> list[DraftState]:
        """Read pending tokens within one budget. Texts that are read to their end get their first nodes, and are returned."""
        left, reading, layouts = PREFILL_CHUNK, list[DraftState](), list[TreeLayout]()
        for state in states:
            if len(rows := state.read(left)):
                left -= len(rows)
                reading.append(state)
                layouts.append(rows)
        ready = [state for state in states if not state.pending]
        contexts, begin = self._contexts(reading), time.perf_counter()
        logits = self._read_text(reading, layouts, ready)
        seconds = time.perf_counter() - begin
        # a prompt's pass gives few logits, so its time says nothing about a tree's pass
        if max(map(len, layouts), default=0) > LEFT_OVER:
            self._prefill_seconds += seconds
        elif reading:
            self._expansion.learn_cost(sum(map(len, layouts)), contexts, seconds)
        add_children(ready, [np.array([ROOT])] * len(ready), logits, self._bounds.children, self._confidence)
        return ready

    def _extend(self, states: Sequence[DraftState], most_seconds: float) -> tuple[list[DraftState], int]:
        """Make one pass over the best leaves of all trees, if it is worth its time.

        Returns the states whose trees have grown, and the rows of the pass.
        """
        leaves = [self._best_leaves(state) for state in states]
        if not any(map(len, leaves)):
            return [], 0
        values = np.concatenate([state.tree.values[nodes] for state, nodes in zip(states, leaves, strict=True)])
        value_seconds = mean_value(state.request.budget for state in states)
        worth = self._expansion.choose(values, value_seconds, self._contexts(states), most_seconds)
        parts = np.split(worth, np.cumsum([len(nodes) for nodes in leaves])[:-1])
        kept = [(state, nodes[part]) for state, nodes, part in zip(states, leaves, parts, strict=True) if part.any()]
        growing, chosen = [state for state, _ in kept], [nodes for _, nodes in kept]
        if not growing:
            return [], 0
        layouts = [state.lay_out(nodes) for state, nodes in zip(growing, chosen, strict=True)]
        contexts, begin = self._contexts(growing), time.perf_counter()
        logits = self._read_nodes(growing, chosen, layouts)
        self._expansion.learn_cost(sum(map(len, layouts)), contexts, time.perf_counter() - begin)
        for state, nodes in zip(growing, chosen, strict=True):
            state.have_read(nodes)
        add_children(growing, chosen, logits, self._bounds.children, self._confidence)
        return growing, sum(map(len, chosen))

    def _best_leaves(self, state: DraftState) -> Ints:
        deepest = min(self._bounds.max_depth, state.deepest)
        return state.tree.best_leaves(
            self._bounds.width, deepest, self._bounds.by_level, self._most_nodes(state.request)
        )

    def _keep_text(self, states: Sequence[DraftState], layouts: Sequence[TreeLayout]) -> None:
        """Keep all cache rows of a pass over texts."""
        self._cache.keep([state.slot for state in states], [np.arange(len(rows)) for rows in layouts])

    def _contexts(self, states: Sequence[DraftState]) -> npt.NDArray[np.int64]:
        """int64[states], the cached tokens of each text."""
        return self._cache.lengths[[state.slot for state in states]]

    def _seconds(self, rows: int, states: Sequence[DraftState]) -> float:
        """The expected seconds of a pass of ``rows`` rows for ``states``."""
        return self._expansion.costs.time(rows, len(states), float(self._contexts(states).mean())) if rows else 0.0


class ModelTreeDrafter(TreeDrafter):
    """Grows trees with the causal language model ``model``. Not thread-safe."""

    def __init__(
        self, model: Target, vocab_size: int, bounds: TreeBounds, expansion: ExpansionPolicy, label: str, slots: int = 0
    ) -> None:
        """``vocab_size``: the target's; other ids are not drafted. ``label``, ``slots``: as in ``StatefulDrafter``."""
        super().__init__(bounds, expansion, label, slots)
        self.model = model
        self._vocab_size = min(vocab_size, model.vocab_size)

    def _read_text(
        self, states: Sequence[DraftState], layouts: list[TreeLayout], ready: Sequence[DraftState]
    ) -> torch.Tensor:
        logits = self._forward(states, layouts, [int(not state.pending) for state in states])
        self._keep_text(states, layouts)
        return logits

    def _read_nodes(
        self, states: Sequence[DraftState], nodes: Sequence[Ints], layouts: list[TreeLayout]
    ) -> torch.Tensor:
        return self._forward(states, layouts, [len(layout) for layout in layouts])

    def _forward(self, states: Sequence[DraftState], layouts: list[TreeLayout], wanted: list[int]) -> torch.Tensor:
        slots = [state.slot for state in states]
        logits = self.model.forward(self._cache, slots, layouts, wanted).logits[:, : self._vocab_size]
        self.model.synchronize()
        self._passes += 1
        return logits
