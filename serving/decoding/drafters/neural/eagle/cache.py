"""The key-value cache of an EAGLE head, and the measured costs of its passes."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from suffolk.serving.decoding.drafters.neural.eagle.config import EagleConfig
from suffolk.serving.decoding.drafters.neural.eagle.layer import Attend
from suffolk.serving.decoding.drafters.neural.eagle.model import EagleHead
from suffolk.serving.decoding.engine.costs.cost_model import CostModel, Sample
from suffolk.serving.decoding.engine.model.kv_cache import KVCache, LayerShape
from suffolk.serving.decoding.engine.model.memory import memory_guard, to_device
from suffolk.serving.decoding.engine.model.tree_attention import PackedRows, Terms, find_places
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain

_POINTS = ((1, 1, 128), (10, 1, 128), (1, 1, 1024), (10, 1, 1024), (4, 1, 128), (30, 1, 128), (64, 1, 128))
"""Points to measure: rows per request, requests, context length."""
_MAX_SLOTS = 16
_ROUNDS = 2
_WARM_UPS = 2


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

    Passes repeat for ``budget`` seconds, and at least twice at each point.
    """
    points = [*_POINTS, *([(1, min(slots, _MAX_SLOTS), 128)] if slots > 1 else [])]
    weight = head.fc.weight
    best = dict.fromkeys(points, np.inf)
    cache = HeadCache(
        head.config, 1, max(batch * (rows + context) for rows, batch, context in points), weight.dtype, weight.device
    )
    for _ in range(_WARM_UPS):
        _time_pass(head, cache, points[0])
    begin, rounds = time.perf_counter(), 0
    while rounds < _ROUNDS or time.perf_counter() - begin < budget:
        for point in points:
            best[point] = min(best[point], _time_pass(head, cache, point))
        rounds += 1
    return CostModel.fit(
        [Sample(rows * batch, batch, context, best[rows, batch, context]) for rows, batch, context in points]
    )


@torch.inference_mode()
def _time_pass(head: EagleHead, cache: HeadCache, point: tuple[int, int, int]) -> float:
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
