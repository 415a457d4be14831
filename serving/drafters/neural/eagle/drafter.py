"""The EAGLE drafter: dynamic trees of EAGLE-2 (Li et al. 2024), for all requests of a step at once."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.calibration.confidence import Confidence
from suffolk.serving.drafters.neural.draft_state import LEFT_OVER, DraftState, add_children
from suffolk.serving.drafters.neural.eagle.cache import HeadCache
from suffolk.serving.drafters.neural.eagle.config import EagleTreeConfig
from suffolk.serving.drafters.neural.eagle.costs import measure_head
from suffolk.serving.drafters.neural.eagle.feature_buffer import FeatureBuffer
from suffolk.serving.drafters.neural.eagle.model import EagleHead
from suffolk.serving.drafters.neural.stateful_drafter import StatefulDrafter
from suffolk.serving.drafters.registry import source_bits
from suffolk.serving.engine.costs.cost_model import CostModel
from suffolk.serving.engine.loop.draft_budget import mean_value
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.loop.prefill_budget import PrefillBudget
from suffolk.serving.engine.model.transfer import to_device
from suffolk.serving.engine.model.tree_layout import TreeLayout
from suffolk.serving.engine.policy.expansion_policy import ExpansionPolicy

Part = tuple[FeatureBuffer, DraftState]
"""A request that can draft in this step."""

SOURCE = source_bits("eagle")


class EagleDrafter(StatefulDrafter[FeatureBuffer]):
    """Grows a tree per request: expands the best nodes of each level, and proposes the best of all nodes. Not thread-safe.

    A pass is made only if it is worth its time. At a temperature above 0 candidates are scored with the target's noise
    (``coupled_sampling.py``).

    Attributes:
        layers: of the target whose hidden states it reads.
    """

    name = "eagle"

    def __init__(
        self,
        head: EagleHead,
        slots: int = 8,
        capacity: int = 4096,
        tree: EagleTreeConfig | None = None,
        costs: CostModel | None = None,
    ) -> None:
        """Allocate the head's cache.

        Args:
            head: on the target's device.
            slots: requests it drafts for at once; further ones get no drafts.
            capacity: tokens of a request, its largest tree included; longer ones get no drafts from there on.
            costs: of the head's passes; None to measure them now, which takes a second.

        Raises:
            InvalidArgument: no text fits into a slot beside a tree.
            ResourceExhausted: no memory for the cache.
        """
        self._tree = tree or EagleTreeConfig()
        self._most = capacity - (self._tree.depth - 1) * self._tree.top_k
        if self._most < 2:
            raise InvalidArgument(
                f"capacity is {capacity}; with trees of {self._tree.depth} levels of {self._tree.top_k} it must be "
                f"{capacity + 2 - self._most} or more"
            )
        super().__init__("EAGLE head", slots)
        self._head = head.eval()
        self.layers = head.layers
        weight = head.fc.weight
        self._device = weight.device
        self._cache = HeadCache(head.config, slots, capacity, weight.dtype, weight.device)
        self._expansion = ExpansionPolicy(costs or measure_head(head, slots))
        self._confidence = Confidence()

    @property
    def cache_bytes(self) -> int:
        """Bytes of its cache."""
        return self._cache.nbytes

    def calibrate(self, confidence: Confidence) -> None:
        """See ``CalibratedDrafter``."""
        self._confidence = confidence

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        buffer = self._states.get(request_id)
        if buffer is None:
            slot = self._free.pop() if self._free else -1
            buffer = self._states[request_id] = FeatureBuffer(slot)
            buffer.lost = slot < 0
        buffer.add(features, self._most)

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        self._calls += 1
        parts = {request.request_id: part for request in requests if (part := self._begin(request)) is not None}
        if parts:
            left = sum(draft.request.budget.model_seconds for _, draft in parts.values())
            left -= self._seconds(len(parts), [*parts.values()])
            growing = self._read([*parts.values()])
            while growing:
                growing, left = self._grow(growing, left)
        return [
            parts[request.request_id][1].tree.best(self._most_nodes(request), SOURCE)
            if request.request_id in parts
            else DraftTree.empty()
            for request in requests
        ]

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        buffer = self._states.get(request_id)
        if buffer is None or buffer.draft is None or not len(buffer.draft.tree):
            return
        buffer.draft.learn(tokens, self._confidence, self._expansion)

    def stats(self) -> dict[str, float]:
        return super().stats() | {"prefill_seconds": self._prefill_seconds}

    def _released(self, request_id: int, state: FeatureBuffer) -> None:
        if state.slot >= 0:
            self._cache.clear(state.slot)
            self._free.append(state.slot)

    def _begin(self, request: DraftRequest) -> Part | None:
        """The request at the begin of a step; None if it cannot have a draft."""
        buffer, size = self._states.get(request.request_id), len(request.tokens)
        if buffer is not None and buffer.draft is not None:
            buffer.draft.forget()
        if buffer is None or size < 2 or (buffer.received < size - 1 and buffer.slot >= 0):
            received = 0 if buffer is None else buffer.received
            self.failures.add("Unavailable", f"hidden states of {received} tokens have come, {size - 1} are needed")
            return None
        if buffer.slot < 0:
            self.failures.add("ResourceExhausted", f"all {self._slots} slots are taken")
            return None
        if buffer.lost or size > self._most:
            self.failures.add("ResourceExhausted", f"a text has {size} tokens, and {self._most} fit with a tree")
            return None
        read = int(self._cache.lengths[buffer.slot])
        if buffer.draft is None:
            buffer.draft = DraftState(request, buffer.slot, self._head.config.vocab_size, self._device)
        buffer.draft.begin(request, read + 1)  # n tokens make n - 1 pairs
        buffer.states = buffer.states[:1]
        return buffer, buffer.draft

    def _read(self, parts: Sequence[Part]) -> list[Part]:
        """Read pending pairs within one budget, and give requests without pending pairs their first nodes."""
        budget = PrefillBudget()
        chosen = [(part, rows) for part in parts if len(rows := part[1].read(budget))]
        reading, layouts = [part for part, _ in chosen], [rows for _, rows in chosen]
        contexts, begin = self._contexts(reading), time.perf_counter()
        if reading:
            features = [buffer.take(len(layout)) for (buffer, _), layout in zip(reading, layouts, strict=True)]
            try:
                states = self._forward(reading, layouts, self._fuse(torch.cat(features)))
            except BaseException:
                for (buffer, _), part in zip(reading, features, strict=True):
                    buffer.put_back(part)
                raise
            for (buffer, _), layout, rows_states in zip(reading, layouts, states, strict=True):
                self._cache.keep(buffer.slot, len(layout))
                buffer.states = rows_states[-1:]
        ready = [part for part in parts if not part[1].pending]
        logits = self._logits([buffer.states for buffer, _ in ready])
        seconds = time.perf_counter() - begin
        if max(map(len, layouts), default=0) > LEFT_OVER:  # most rows of a prompt give no logits: not a cost of trees
            self._prefill_seconds += seconds
        elif reading:
            self._learn_cost(layouts, contexts, seconds)
        self._expand(ready, [draft.root() for _, draft in ready], logits)
        return ready

    def _grow(self, parts: Sequence[Part], left: float) -> tuple[list[Part], float]:
        """Make one pass for the best nodes of all trees' last levels, if it is worth its time and within ``left`` seconds.

        Returns the requests whose trees have grown, and the seconds left then.
        """
        chosen = [(part, self._best_leaves(part[1])) for part in parts]
        chosen = [(part, nodes) for part, nodes in chosen if len(nodes)]
        growing, contexts = [part for part, _ in chosen], self._contexts([part for part, _ in chosen])
        value = sum(float(draft.tree.values[nodes].sum()) for (_, draft), nodes in chosen)
        rows = sum(len(nodes) for _, nodes in chosen)
        if not growing:
            return [], left
        value_seconds = mean_value(draft.request.budget for _, draft in growing)
        if not self._expansion.pays(value, value_seconds, rows, contexts):
            return [], left
        left -= self._seconds(rows, growing)
        if left < 0:
            return [], left
        begin_time = time.perf_counter()
        hidden = [
            buffer.states[to_device(draft.rows_of(draft.tree.parents[nodes]) + 1, self._device)]
            for (buffer, draft), nodes in chosen
        ]
        layouts = [draft.lay_out(nodes) for (_, draft), nodes in chosen]
        states = self._forward(growing, layouts, torch.cat(hidden))
        for ((buffer, draft), nodes), new in zip(chosen, states, strict=True):
            buffer.states = torch.cat([buffer.states, new])
            draft.have_read(nodes)
        logits = self._logits(states)
        self._learn_cost(layouts, contexts, time.perf_counter() - begin_time)
        self._expand(growing, [nodes for _, nodes in chosen], logits)
        return growing, left

    @torch.inference_mode()
    def _fuse(self, features: torch.Tensor) -> torch.Tensor:
        return self._head.fuse(features.to(self._device))

    @torch.inference_mode()
    def _forward(
        self, parts: Sequence[Part], layouts: Sequence[TreeLayout], hidden: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """The states of each request's rows; ``hidden``: of all rows, concatenated."""
        positions, attend = self._cache.place([buffer.slot for buffer, _ in parts], layouts)
        tokens = to_device(np.concatenate([layout.tokens for layout in layouts]), self._device)
        self._passes += 1
        states = self._head.step(tokens[None], hidden[None], positions, attend)[0]
        return torch.split(states, [len(layout) for layout in layouts])

    @torch.inference_mode()
    def _logits(self, states: Sequence[torch.Tensor]) -> torch.Tensor:
        """float[rows of all, vocab]; waits for the device."""
        if not states:
            return torch.empty((0, self._head.config.vocab_size))
        logits = self._head.logits(torch.cat([*states]))
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return logits

    def _expand(self, parts: Sequence[Part], nodes: Sequence[npt.NDArray[np.int64]], logits: torch.Tensor) -> None:
        add_children([draft for _, draft in parts], nodes, logits, self._tree.top_k, self._confidence)

    def _learn_cost(self, layouts: Sequence[TreeLayout], contexts: npt.NDArray[np.int64], seconds: float) -> None:
        self._expansion.learn_cost(sum(len(layout) for layout in layouts), contexts, seconds)

    def _best_leaves(self, draft: DraftState) -> npt.NDArray[np.int64]:
        """The nodes of the tree's last level that a pass should read."""
        deepest = min(self._tree.depth, draft.deepest)
        return draft.tree.best_leaves(self._tree.top_k, deepest, True, self._most_nodes(draft.request))

    def _most_nodes(self, request: DraftRequest) -> int:
        return min(self._tree.nodes, request.max_nodes)

    def _seconds(self, rows: int, parts: Sequence[Part]) -> float:
        """The expected seconds of a pass of ``rows`` rows for ``parts``."""
        return self._expansion.costs.time(rows, len(parts), float(self._contexts(parts).mean()))

    def _contexts(self, parts: Sequence[Part]) -> npt.NDArray[np.int64]:
        return self._cache.lengths[[buffer.slot for buffer, _ in parts]]
