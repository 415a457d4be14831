"""Attention of a pass of static shape. Every slot has the same number of keys and of cells. A cell holds one row.

All sizes depend on the ``Bucket`` alone, and nothing is copied from the device to the host. So CUDA graphs can capture the pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F

from suffolk.serving.decoding.engine.model.tree_attention import Terms, capped_attention

WORD = 64
"""Number of bits in an element of ``ancestors``."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """The shape of a pass.

    Attributes:
        rows: rows of the linear layers, over all requests.
        slots: attention runs over the first ``slots`` slots.
        cells: rows per slot in attention.
        keys: keys per slot in attention, cached tokens and rows.
    """

    rows: int
    slots: int
    cells: int
    keys: int


@dataclass(slots=True)
class Grid:
    """The places of a static pass's rows, and the cells that each row sees. All arrays are int64, on the cache's device.

    Attributes:
        bucket: the pass's shape.
        capacity: tokens of a slot of the cache.
        members: [slots * cells], the row in each cell; an unused cell has an arbitrary row.
        places: [rows], the cell of each row; an unused row has an arbitrary cell.
        lengths: [slots], cached tokens; 0 for an unused slot.
        depths: [slots, cells], a row's position after the cached tokens.
        ancestors: [slots, cells, words], bit j % 64 of word j // 64 is set if the cell sees the slot's cell j. Every cell sees
            itself, also an unused cell, because a softmax over nothing would be NaN.
    """

    bucket: Bucket
    capacity: int
    members: torch.Tensor
    places: torch.Tensor
    lengths: torch.Tensor
    depths: torch.Tensor
    ancestors: torch.Tensor
    _masks: dict[tuple[int | None, int, torch.dtype], torch.Tensor] = field(default_factory=dict)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, terms: Terms) -> torch.Tensor:
        """[1, heads, rows, value width]; ``query`` [1, heads, rows, width], ``key`` and ``value`` [cache rows, heads, width]."""
        slots, cells = self.bucket.slots, self.bucket.cells
        heads, key_heads = query.shape[1], key.shape[1]
        fold = heads // key_heads
        rows = query[0].index_select(1, self.members).view(key_heads, fold, slots, cells, -1)
        rows = rows.permute(2, 0, 1, 3, 4).reshape(slots, key_heads, fold * cells, -1)
        keys, values, mask = self._cached(key), self._cached(value), self._mask(terms.window, fold, query.dtype)
        if terms.softcap is None:
            output = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask, scale=terms.scaling)
        else:
            output = capped_attention(rows, keys, values, mask, terms.scaling, terms.softcap)
        output = output.reshape(slots, key_heads, fold, cells, -1).permute(1, 2, 0, 3, 4)
        return output.reshape(heads, slots * cells, -1).index_select(1, self.places)[None]

    def _cached(self, slab: torch.Tensor) -> torch.Tensor:
        """[slots, heads, keys, width], a view of the cache's [rows, heads, width]."""
        size = self.bucket.slots * self.capacity
        return (
            slab[:size].view(self.bucket.slots, self.capacity, *slab.shape[1:])[:, : self.bucket.keys].transpose(1, 2)
        )

    def _mask(self, window: int | None, fold: int, dtype: torch.dtype) -> torch.Tensor:
        """Additive [slots, 1, fold * cells, keys]; made once per pass for all layers of one kind."""
        kind = (window, fold, dtype)
        if kind not in self._masks:
            seen = self._seen(window)
            mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, -torch.inf)
            self._masks[kind] = mask.repeat(1, fold, 1)[:, None]
        return self._masks[kind]

    def _seen(self, window: int | None) -> torch.Tensor:
        """bool[slots, cells, keys], whether a cell's row sees a key of its slot."""
        cells, device = self.bucket.cells, self.lengths.device
        keys = torch.arange(self.bucket.keys, device=device)
        behind = keys - self.lengths[:, None]  # the cell that holds a key; negative for a cached token
        cell = behind.clamp(0, cells - 1)
        bits = (self.ancestors[..., None] >> torch.arange(WORD, device=device)) & 1
        visible = bits.flatten(-2).bool().gather(2, cell[:, None].expand(-1, cells, -1))
        seen = visible & (behind < cells)[:, None] | (behind < 0)[:, None]
        if window is not None:
            own = self.lengths[:, None] + self.depths
            positions = torch.where(behind < 0, keys, own.gather(1, cell))
            seen = seen & (positions[:, None] > own[..., None] - window)
        return seen
