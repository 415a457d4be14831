"""The key-value cache of an EAGLE head's only layer, with one slot per request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from suffolk.serving.drafters.neural.eagle.config import EagleConfig
from suffolk.serving.drafters.neural.eagle.layer import Attend
from suffolk.serving.engine.model.memory import memory_guard
from suffolk.serving.engine.model.transfer import to_device
from suffolk.serving.engine.model.tree_attention import PackedRows, Terms, find_places
from suffolk.serving.engine.model.tree_layout import TreeLayout


class HeadCache:
    """Keys and values; row i of slot s is row s * capacity + i. Not thread-safe.

    The rows of a pass are dropped unless ``keep`` follows. Rows of drafted nodes come from predicted hidden states, so accepted
    tokens are read again with the target's hidden states.

    Attributes:
        lengths: int64[slots], the rows kept in each slot.
    """

    def __init__(
        self, config: EagleConfig, slots: int, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Raises ResourceExhausted if memory is out."""
        self.slots, self.capacity = slots, capacity
        self.lengths = np.zeros(slots, np.int64)
        self._terms = Terms(config.head_width**-0.5, None, None)
        self._device = device
        shape = (slots * capacity, config.key_value_heads, config.head_width)
        with memory_guard(f"EAGLE head's cache for {slots} x {capacity} tokens"):
            self._keys = torch.zeros(shape, dtype=dtype, device=device)
            self._values = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def nbytes(self) -> int:
        """Bytes of keys and values."""
        return self._keys.nbytes + self._values.nbytes

    def place(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> tuple[torch.Tensor, Attend]:
        """Place the rows of the next pass. Returns their positions int64[rows], and their attention."""
        found = find_places(self.lengths, self.capacity, slots, layouts)
        both = to_device(np.stack([found.positions, found.rows]), self._device)
        packed = PackedRows(found.spans)

        def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
            self._keys.index_copy_(0, both[1], key[0].transpose(0, 1))
            self._values.index_copy_(0, both[1], value[0].transpose(0, 1))
            return packed.attend(query, self._keys, self._values, self._terms)

        return both[0], attend

    def keep(self, slot: int, rows: int) -> None:
        """Keep the first ``rows`` rows that the last pass added to a slot."""
        self.lengths[slot] += rows

    def clear(self, slot: int) -> None:
        """Drop a slot's rows; the memory stays."""
        self.lengths[slot] = 0
