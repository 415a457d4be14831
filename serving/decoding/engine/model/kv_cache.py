"""The KV cache of all running requests. It is allocated once, has a slot for each request, and is compacted in place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from suffolk.serving.decoding.engine.model.memory import to_device
from suffolk.serving.decoding.engine.model.tree_layout import positions_within


@dataclass(frozen=True, slots=True)
class LayerShape:
    """The shape of a layer's cache: its heads, the widths of keys and values, and its window (None for all tokens)."""

    heads: int
    key_width: int
    value_width: int
    window: int | None


Shapes = tuple[LayerShape | None, ...]
"""One entry per layer; None for a layer that shares another layer's cache."""


class KVCache:
    """The keys and values of ``slots`` requests. A request has up to ``capacity`` tokens, rows of rejected nodes included.

    Token i of slot s is row s * capacity + i of every layer. Layers of equal shape share a slab [layers, rows, heads, width].
    So compaction takes one gather and one copy for all these layers and all requests. Layers with a sliding window keep
    their whole history; attention applies the window. Not thread-safe.

    Attributes:
        lengths: int64[slots], tokens kept per slot.
        spare: a row of every layer that belongs to no slot.
        layers: the transformers cache for the model's forward pass.
        own_layers: the layers of ``layers`` that have a shape.
        slabs: the cached keys and values, by the shape of a token's keys or values in a layer: float[layers, rows, *shape].
        nbytes: bytes of all slabs.
    """

    def __init__(
        self,
        layers: DynamicCache,
        shapes: Shapes,
        slots: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """``layers``: an empty transformers cache of the model. Its layers that have a shape are replaced."""
        self.slots = slots
        self.capacity = capacity
        self.lengths = np.zeros(slots, np.int64)
        self.spare = slots * capacity
        self.layers = layers
        self._device = device
        needed = Counter(form for shape in shapes for form in _forms(shape))
        self.slabs = {
            form: torch.zeros((count, slots * capacity + 1, *form), dtype=dtype, device=device)
            for form, count in needed.items()
        }
        self.nbytes = sum(slab.nbytes for slab in self.slabs.values())
        free = {form: iter(slab) for form, slab in self.slabs.items()}
        self.own_layers: list[SlabLayer] = []
        for number, shape in enumerate(shapes):
            if shape is not None:
                keys, values = (next(free[form]) for form in _forms(shape))
                layer = SlabLayer(keys, values)
                layers.layers[number] = layer
                self.own_layers.append(layer)

    def write_finite(self) -> None:
        """Write NaN and infinity as 0 from now on. Passes of static shape need this, because they multiply stale rows by 0."""
        for layer in self.own_layers:
            layer.finite = True

    def place(self, rows: torch.Tensor) -> None:
        """Set the cache rows of the next forward pass: int64[q] on the cache's device, one for each row of the pass."""
        for layer in self.own_layers:
            layer.rows = rows

    def keep(
        self,
        slots: Sequence[int],
        accepted: Sequence[npt.NDArray[np.int64]],
        placed: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Keep the ``accepted`` rows that passes appended to each slot, and drop the others.

        Args:
            slots: all different.
            accepted: for each slot, int64[k]: the accepted rows in ascending order, counted from the slot's length.
            placed: bool[slots], whether a device step has already moved a slot's accepted rows; None if there was no device step.
        """
        chosen = np.asarray(slots, np.int64)
        counts = np.fromiter(map(len, accepted), np.int64, len(accepted))
        rows, order = np.concatenate(accepted), positions_within(counts)
        moves = rows != order  # the first rows are often in place already
        moved = np.flatnonzero(moves if placed is None else moves & ~np.repeat(placed, counts))
        if len(moved):
            begin = np.repeat(chosen * self.capacity + self.lengths[chosen], counts)[moved]
            self.move(*to_device(np.stack([begin + rows[moved], begin + order[moved]]), self._device))
        self.lengths[chosen] += counts

    def move(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy rows ``sources`` to ``targets`` in all layers. Both are int64[n] on the cache's device, and may overlap."""
        for slab in self.slabs.values():
            slab[:, targets] = slab[:, sources]

    def copy(self, source: int, target: int, begin: int, end: int) -> None:
        """Copy the tokens from ``begin`` to ``end`` of slot ``source`` to the same places of slot ``target``. The length of
        ``target`` becomes ``end``."""
        places = slice(source * self.capacity + begin, source * self.capacity + end)
        others = slice(target * self.capacity + begin, target * self.capacity + end)
        for slab in self.slabs.values():
            slab[:, others] = slab[:, places]
        self.lengths[target] = end

    def clear(self, slot: int) -> None:
        """Drop a slot's tokens; the memory stays."""
        self.lengths[slot] = 0


class SlabLayer(DynamicLayer):  # type: ignore[no-untyped-call]  # transformers is not typed throughout
    """A cache layer of transformers that writes to its part of a slab and returns this whole part: [rows, heads, width].

    Only tree attention reads this layout.
    """

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_initialized = True
        self.keys, self.values = keys, values
        self.rows = torch.empty(0, dtype=torch.int64)
        self.finite = False

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write ``key_states`` and ``value_states`` [1, heads, q, width], the rows of one packed pass."""
        if self.finite:
            key_states = key_states.nan_to_num(0.0, 0.0, 0.0)
            value_states = value_states.nan_to_num(0.0, 0.0, 0.0)
        self.keys.index_copy_(0, self.rows, key_states[0].transpose(0, 1))
        self.values.index_copy_(0, self.rows, value_states[0].transpose(0, 1))
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return 0  # positions and masks come with every pass


def _forms(shape: LayerShape | None) -> list[tuple[int, int]]:
    return [] if shape is None else [(shape.heads, shape.key_width), (shape.heads, shape.value_width)]
