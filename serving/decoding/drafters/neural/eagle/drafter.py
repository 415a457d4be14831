"""The EAGLE drafter grows the dynamic trees of EAGLE-2 (Li et al. 2024) for all requests of a step at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.drafters.neural.draft_state import DraftState
from suffolk.serving.decoding.drafters.neural.eagle.config import EagleConfig
from suffolk.serving.decoding.drafters.neural.eagle.layer import Attend
from suffolk.serving.decoding.drafters.neural.eagle.model import EagleHead
from suffolk.serving.decoding.drafters.neural.growing_tree import Ints
from suffolk.serving.decoding.drafters.neural.tree_bounds import TreeBounds
from suffolk.serving.decoding.drafters.neural.tree_drafter import TreeDrafter
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.engine.costs.cost_measurement import fastest
from suffolk.serving.decoding.engine.costs.cost_model import CostModel, Point
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.model.kv_cache import KVCache, LayerShape
from suffolk.serving.decoding.engine.model.memory import memory_guard, to_device
from suffolk.serving.decoding.engine.model.tree_attention import PackedRows, Terms, find_places
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain
from suffolk.serving.decoding.engine.policy.expansion_policy import ExpansionPolicy

_POINTS = ((1, 1, 128), (10, 1, 128), (1, 1, 1024), (10, 1, 1024), (4, 1, 128), (30, 1, 128), (64, 1, 128))
"""Points to measure: rows per request, requests, context length."""
_MAX_SLOTS = 16


class HeadCache(KVCache):
    """A cache of one layer. Not thread-safe.

    The rows of a pass are dropped unless ``keep`` follows. Rows of drafted nodes come from predicted hidden states, so accepted
    tokens are read again with the target's hidden states.
    """

    def __init__(
        self, config: EagleConfig, slots: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Raises ResourceExhausted if memory is out."""
        layers = DynamicCache()
        layers.layers = [DynamicLayer()]  # type: ignore[no-untyped-call]  # replaced by the layer of the slab
        shape = LayerShape(config.key_value_heads, config.head_width, config.head_width, None)
        with memory_guard(f"EAGLE head's cache for {slots} x {capacity} tokens"):
            super().__init__(layers, (shape,), slots, capacity, dtype, device)
        self._terms = Terms(config.head_width**-0.5, None, None)

    def attention(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> tuple[torch.Tensor, Attend]:
        """Place the rows of the next pass. Returns their positions int64[rows], and their attention."""
        found = find_places(self.lengths, self.capacity, slots, layouts)
        positions, rows = to_device(np.stack([found.positions, found.rows]), self._device)
        self.place(rows)
        packed = PackedRows(found.spans)

        def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            keys, values = self.layers.update(key, value, 0)
            return packed.attend(query, keys, values, self._terms)

        return positions, attend


def measure_head(head: EagleHead, slots: int = 1, budget: float = 1.0) -> CostModel:
    """Fit a cost model to the fastest pass at each of a few points. A pass includes the output layer.

    ``budget``: as in ``fastest``.
    """
    points = [*_POINTS, *([(1, min(slots, _MAX_SLOTS), 128)] if slots > 1 else [])]
    weight = head.fc.weight
    cache = HeadCache(
        head.config, 1, max(batch * (rows + context) for rows, batch, context in points), weight.dtype, weight.device
    )
    return CostModel.fit(fastest(partial(_time_pass, head, cache), points, budget=budget))


@torch.inference_mode()
def _time_pass(head: EagleHead, cache: HeadCache, point: Point) -> float:
    rows, batch, context = point
    cache.slots, cache.capacity = batch, rows + context  # all points share one allocation
    cache.lengths = np.full(batch, context)
    weight = head.fc.weight
    tokens = torch.zeros((1, rows * batch), dtype=torch.int64, device=weight.device)
    hidden = torch.ones((1, rows * batch, head.config.hidden_size), dtype=weight.dtype, device=weight.device)
    begin = time.perf_counter()
    positions, attend = cache.attention(range(batch), [chain(np.zeros(rows, np.int64))] * batch)
    states = head.step(tokens, hidden, positions, attend)
    head.logits(states[0]).argmax(-1).cpu()
    return time.perf_counter() - begin


BOUNDS = TreeBounds(max_depth=6, width=10, children=10, max_nodes=60, by_level=True)
"""Default bounds, as in EAGLE-2 (Li et al. 2024, section 4)."""


class EagleDrafter(TreeDrafter):
    """Grows trees with an EAGLE head and a cache for its layer. Not thread-safe.

    Attributes:
        layers: the target's layers whose hidden states it reads (``FeatureDrafter``).
        cache_bytes: bytes of its cache.
    """

    name = "eagle"
    source = source_bits("eagle")
    _cache: HeadCache

    def __init__(
        self,
        head: EagleHead,
        slots: int = 8,
        capacity: int = 4096,
        bounds: TreeBounds = BOUNDS,
        costs: CostModel | None = None,
    ) -> None:
        """Allocate the head's cache.

        Args:
            head: on the target's device.
            slots: the most requests at once. Further requests get no drafts.
            capacity: the most tokens of a request, its largest tree included. Longer texts get no drafts.
            costs: costs of the head's passes; None to measure them now, which takes a second.

        Raises:
            InvalidArgument: no text fits into a slot beside a tree.
            ResourceExhausted: out of memory for the cache.
        """
        self._most = capacity - (bounds.max_depth - 1) * bounds.width
        if self._most < 2:
            raise InvalidArgument(
                Field("capacity"),
                f" is {capacity}; with trees of {bounds.max_depth} levels of {bounds.width} it must be "
                f"{capacity + 2 - self._most} or more",
            )
        super().__init__(bounds, ExpansionPolicy(costs or measure_head(head, slots)), "EAGLE head", slots)
        self._head = head.eval()
        self.layers = head.layers
        weight = head.fc.weight
        self._device = weight.device
        self._cache = HeadCache(head.config, slots, capacity, weight.dtype, weight.device)
        self.cache_bytes = self._cache.nbytes
        self._buffers: dict[int, FeatureBuffer] = {}

    def follow(self, request_id: int, features: torch.Tensor) -> None:
        buffer = self._buffers.get(request_id)
        if buffer is None:
            buffer = self._buffers[request_id] = FeatureBuffer(self._free.pop() if self._free else None)
        buffer.add(features, self._most)

    def release(self, request_id: int) -> None:
        super().release(request_id)
        buffer = self._buffers.pop(request_id, None)
        if buffer is not None and buffer.slot is not None:
            self._cache.clear(buffer.slot)
            self._free.append(buffer.slot)

    def close(self) -> None:
        for request_id in list(self._buffers):
            self.release(request_id)

    def _open(self, request: DraftRequest, requests: int) -> DraftState | None:
        state, size = self._states.get(request.request_id), len(request.tokens)
        if state is not None:
            state.forget()
        buffer = self._buffers.get(request.request_id, FeatureBuffer(None))
        if size < 2 or buffer.received < size - 1:
            message = f"hidden states of {buffer.received} tokens have come, {size - 1} are needed"
            self.failures.add("Unavailable", message)
            return None
        if buffer.slot is None:
            self.failures.add("ResourceExhausted", f"all {self._slots} slots are taken")
            return None
        if buffer.lost or size > self._most:
            self.failures.add("ResourceExhausted", f"a text has {size} tokens, and {self._most} fit with a tree")
            return None
        if state is None:
            state = DraftState(request, buffer.slot, self._head.config.vocab_size, self._device)
            self._states[request.request_id] = state
        state.begin(request, int(self._cache.lengths[buffer.slot]) + 1)  # n tokens are n - 1 pairs
        buffer.states = buffer.states[:1]
        return state

    @torch.inference_mode()
    def _read_text(
        self, states: Sequence[DraftState], layouts: list[TreeLayout], ready: Sequence[DraftState]
    ) -> torch.Tensor:
        """See ``TreeDrafter``. If a text has no new pairs (``EagleHead``), its last hidden state comes from an earlier step."""
        buffers = self._buffers_of(states)
        if buffers:
            features = [buffer.take(len(rows)) for buffer, rows in zip(buffers, layouts, strict=True)]
            try:
                found = self._forward(states, layouts, self._head.fuse(torch.cat(features).to(self._device)))
            except BaseException:
                for buffer, part in zip(buffers, features, strict=True):
                    buffer.put_back(part)
                raise
            self._keep_text(states, layouts)
            for buffer, part in zip(buffers, found, strict=True):
                buffer.states = part[-1:]
        return self._logits([buffer.states for buffer in self._buffers_of(ready)])

    @torch.inference_mode()
    def _read_nodes(
        self, states: Sequence[DraftState], nodes: Sequence[Ints], layouts: list[TreeLayout]
    ) -> torch.Tensor:
        """See ``TreeDrafter``. A node's input includes the hidden state of its parent."""
        buffers = self._buffers_of(states)
        hidden = [
            buffer.states[to_device(state.rows_of(state.tree.parents[each]) + 1, self._device)]
            for buffer, state, each in zip(buffers, states, nodes, strict=True)
        ]
        found = self._forward(states, layouts, torch.cat(hidden))
        for buffer, part in zip(buffers, found, strict=True):
            buffer.states = torch.cat([buffer.states, part])
        return self._logits(found)

    def _buffers_of(self, states: Sequence[DraftState]) -> list[FeatureBuffer]:
        return [self._buffers[state.request.request_id] for state in states]

    def _forward(
        self, states: Sequence[DraftState], layouts: list[TreeLayout], hidden: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """The head's hidden states for the rows of each request; ``hidden``: float[rows of all, hidden], the input."""
        positions, attend = self._cache.attention([state.slot for state in states], layouts)
        tokens = to_device(np.concatenate([layout.tokens for layout in layouts]), self._device)
        self._passes += 1
        found = self._head.step(tokens[None], hidden[None], positions, attend)[0]
        return torch.split(found, [len(layout) for layout in layouts])

    def _logits(self, hidden: Sequence[torch.Tensor]) -> torch.Tensor:
        """float[rows of all, vocab]. Waits for the device."""
        if not hidden:
            return torch.empty((0, self._head.config.vocab_size))
        logits = self._head.logits(torch.cat([*hidden]))
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return logits


class FeatureBuffer:
    """A request's slot, its unread hidden states, and the head's own hidden states. Not thread-safe.

    Attributes:
        slot: its slot in the head's cache; None if all were taken. Then no hidden states are kept.
        received: the number of tokens whose hidden states have come.
        lost: whether hidden states were dropped. The request then gets no more drafts.
        states: float[1 + drafted, hidden], the head's hidden states of the text's last pair and of the drafted nodes.
    """

    def __init__(self, slot: int | None) -> None:
        self.slot = slot
        self.received = 0
        self.lost = slot is None
        self.states = torch.empty(0)
        self._waiting: list[torch.Tensor] = []

    def add(self, features: torch.Tensor, capacity: int) -> None:
        """Keep ``features`` float[k, layers, width] of the next k tokens, unless the text exceeds ``capacity`` tokens."""
        self.received += len(features)
        if self.received > capacity:
            self.lost = True
            self._waiting = []
        elif not self.lost and len(features):
            self._waiting.append(features)

    def take(self, count: int) -> torch.Tensor:
        """float[count, layers, width], the oldest buffered hidden states. REQUIRES: ``count`` are buffered."""
        waiting = self._waiting[0] if len(self._waiting) == 1 else torch.cat(self._waiting)
        self._waiting = [waiting[count:]] if len(waiting) > count else []
        return waiting[:count]

    def put_back(self, features: torch.Tensor) -> None:
        """Undo the last ``take``, after a pass that failed."""
        self._waiting.insert(0, features)
