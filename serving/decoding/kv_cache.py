"""One request's keys and values: one allocation for all layers, appended to and compacted in place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer keeps per token: heads and widths of keys and values, and how far back it looks (None: all)."""

    heads: int
    key_width: int
    value_width: int
    window: int | None


Shapes = tuple[LayerShape | None, ...]
"""One entry per layer; None for a layer that keeps nothing of its own."""


class KVCache:
    """Keys and values of up to ``capacity`` tokens, batch 1.

    Layers of equal shape share a slab, so that compaction is one gather and one copy for all of them. Layers with a sliding
    window keep their whole history and are windowed by the mask: a rejected branch then needs no undoing. Not thread-safe.
    """

    def __init__(
        self, layers: DynamicCache, shapes: Shapes, capacity: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        """Takes over ``layers``, an empty cache made for the model; its layers without a shape stay as they are."""
        self.capacity = capacity
        self.length = 0
        needed: dict[tuple[int, int], int] = {}
        for form in (form for shape in shapes for form in _forms(shape)):
            needed[form] = needed.get(form, 0) + 1
        self._slabs = {
            form: torch.empty((count, 1, form[0], capacity, form[1]), dtype=dtype, device=device)
            for form, count in needed.items()
        }
        free = {form: iter(slab) for form, slab in self._slabs.items()}
        self.layers = layers
        self._appending: list[SlabLayer] = []
        for number, shape in enumerate(shapes):
            if shape is not None:
                keys, values = (next(free[form]) for form in _forms(shape))
                layer = SlabLayer(keys, values, shape.window)
                layers.layers[number] = layer
                self._appending.append(layer)

    def keep(self, accepted: torch.Tensor) -> None:
        """Keep ``accepted`` (int64[k], rows of the last forward pass counted from the cache's length) and drop its other rows."""
        count = len(accepted)
        rows = accepted + self.length
        for slab in self._slabs.values():
            slab[:, :, :, self.length : self.length + count] = slab.index_select(3, rows)
        self.advance(count)

    def advance(self, count: int) -> None:
        """Keep the first ``count`` rows of the last forward pass and drop the others."""
        self.length += count
        for layer in self._appending:
            layer.length = self.length

    def reset(self) -> None:
        """Forget all tokens; the memory stays."""
        self.length = 0
        self.advance(0)


class SlabLayer(DynamicLayer):  # type: ignore[no-untyped-call]  # transformers is not typed throughout
    """A cache layer of transformers that appends into a view of a slab instead of concatenating."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, window: int | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_sliding = window is not None
        self.is_initialized = True
        self.length = 0
        self.keys, self.values = keys, values

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        end = self.length + key_states.shape[-2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.length


def bytes_per_token(shapes: Shapes, itemsize: int) -> int:
    """What one token takes in the cache, over all layers."""
    return itemsize * sum(heads * width for shape in shapes for heads, width in _forms(shape))


def _forms(shape: LayerShape | None) -> list[tuple[int, int]]:
    return [] if shape is None else [(shape.heads, shape.key_width), (shape.heads, shape.value_width)]
