"""The key-value cache of an EAGLE head."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from suffolk.serving.decoding.drafters.neural.eagle.config import EagleConfig
from suffolk.serving.decoding.drafters.neural.eagle.layer import Attend
from suffolk.serving.decoding.engine.model.kv_cache import KVCache, LayerShape
from suffolk.serving.decoding.engine.model.memory import memory_guard
from suffolk.serving.decoding.engine.model.transfer import to_device
from suffolk.serving.decoding.engine.model.tree_attention import PackedRows, Terms, find_places
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout


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
