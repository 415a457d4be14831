"""Tree attention, registered with transformers under ``NAME``. A row sees its slot's cached tokens, its ancestors and itself.

The rows of all requests form one packed sequence, so linear layers compute no padding. Only attention separates the requests.
Passes of static shape use ``grid_attention.py`` instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from transformers import AttentionInterface

from suffolk.datastore.errors import Internal, Unsupported
from suffolk.serving.decoding.engine.model import ordered_attention
from suffolk.serving.decoding.engine.model.memory import to_device
from suffolk.serving.decoding.engine.model.ordered_attention import OrderedRows
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout

NAME = "suffolk_tree"
FOLDED_ROWS = 64
"""Up to this many rows, query heads that share a key head become rows of one head, so that the keys are read once."""
LEAST_PAIRS = 100_000
"""Number of pairs (row of the tree, cached token) from which ``split_attention`` is faster; measured on one CPU with AVX-512."""


@dataclass(slots=True)
class Span:
    """One request's rows in a packed pass, from row ``begin`` on, after ``cached`` tokens that begin at cache row ``first``."""

    layout: TreeLayout
    begin: int
    first: int
    cached: int
    _masks: dict[tuple[int | None, int, torch.dtype], tuple[int, torch.Tensor | None]] = field(default_factory=dict)

    def splits(self, window: int | None) -> bool:
        """Whether ``split_attention`` is faster and exact: the tree is large, and no window hides a cached token."""
        size = len(self.layout)
        if not self.cached or not 1 < size <= FOLDED_ROWS or size * self.cached < LEAST_PAIRS:
            return False
        return window is None or self.cached + int(self.layout.depths.max()) < window

    def own_mask(self, fold: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Additive mask [fold * n, earlier + n] over the rows of earlier passes and of this pass, without the cached tokens."""
        key = (-1, fold, dtype)
        if key not in self._masks:
            self._masks[key] = 0, _additive(self._visible(), fold, dtype, device)
        mask = self._masks[key][1]
        assert mask is not None
        return mask

    def mask(
        self, window: int | None, fold: int, dtype: torch.dtype, device: torch.device
    ) -> tuple[int, torch.Tensor | None]:
        """The number of oldest keys that no row sees, and an additive mask over the other keys.

        The mask is [fold * n, other keys], or None if every row sees all of these keys.
        """
        key = (window, fold, dtype)
        if key not in self._masks:
            self._masks[key] = self._make(window, fold, dtype, device)
        return self._masks[key]

    def _make(
        self, window: int | None, fold: int, dtype: torch.dtype, device: torch.device
    ) -> tuple[int, torch.Tensor | None]:
        size, earlier = len(self.layout), len(self.layout.earlier)
        skip = 0 if window is None else max(0, self.cached - window + 1)
        seen = np.ones((size, self.cached - skip + earlier + size), np.bool_)
        seen[:, self.cached - skip :] = self._visible()
        if window is not None:
            depths = np.concatenate([self.layout.earlier, self.layout.depths])
            positions = np.concatenate([np.arange(skip, self.cached), self.cached + depths])
            seen &= positions[None, :] > (self.cached + self.layout.depths)[:, None] - window
        if seen.all():
            return skip, None
        return skip, _additive(seen, fold, dtype, device)

    def _visible(self) -> npt.NDArray[np.bool_]:
        visible = self.layout.visible
        if visible is not None:
            return visible
        size, earlier = len(self.layout), len(self.layout.earlier)
        return np.tri(size, earlier + size, earlier, dtype=np.bool_)


def _additive(seen: npt.NDArray[np.bool_], fold: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The mask with 0 where a row sees a key and -inf elsewhere. Its rows are repeated ``fold`` times."""
    hidden = to_device(~seen, device)
    mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, -torch.inf)
    return mask.repeat(fold, 1)


class Terms(NamedTuple):
    """The parameters of a layer's attention.

    Attributes:
        scaling: factor of the scores.
        window: tokens that a row looks back; None for all.
        softcap: bound of the scores; None for none.
        layer: number of the layer.
    """

    scaling: float
    window: int | None
    softcap: float | None
    layer: int = 0


class Rows(Protocol):
    """The rows of a pass and their attention."""

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, terms: Terms) -> torch.Tensor:
        """[1, heads, q, value width], the attention of all rows in a layer; tensors as in the function ``attend``."""


@dataclass(slots=True)
class PackedRows:
    """The rows of all requests in sequence. torch's attention runs request by request, over the keys of that request.

    Attributes:
        ordered: whether the kernel of ``ordered_attention.py`` computes all rows, if it supports their dtype.
    """

    spans: Sequence[Span]
    ordered: bool = False
    _rows: OrderedRows | None = None

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, terms: Terms) -> torch.Tensor:
        if self.ordered and ordered_attention.supports(query, key, value):
            if self._rows is None:
                self._rows = OrderedRows.of(self.spans)
            return self._rows.attend(query, key, value, terms.scaling, terms.window, terms.softcap)
        outputs = [_attend_span(query, key, value, span, terms) for span in self.spans]
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 2)


class Places(NamedTuple):
    """The places of a pass's rows: ``spans``, ``positions`` in their texts int64[rows], and cache ``rows`` int64[rows]."""

    spans: list[Span]
    positions: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]


def find_places(
    lengths: npt.NDArray[np.int64],
    capacity: int,
    slots: Sequence[int],
    layouts: Sequence[TreeLayout],
) -> Places:
    """The places of the rows of ``layouts``. Each slot has ``capacity`` cache rows and keeps as many tokens as ``lengths`` says.

    Raises:
        Internal: the rows of a layout do not fit its slot.
    """
    spans, rows, positions = [], [], []
    begin = 0
    for slot, layout in zip(slots, layouts, strict=True):
        first, kept, size = slot * capacity, int(lengths[slot]), len(layout)
        taken = kept + len(layout.earlier)
        if taken + size > capacity:
            raise Internal(f"slot {slot}: {taken} rows taken and {size} new ones; it has {capacity}")
        spans.append(Span(layout, begin, first, kept))
        rows.append(np.arange(first + taken, first + taken + size))
        positions.append(kept + layout.depths)
        begin += size
    return Places(spans, np.concatenate(positions), np.concatenate(rows))


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    suffolk_rows: Rows | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """transformers' attention interface. ``query`` [1, heads, q, width]; ``key`` and ``value``: [cache rows, heads, width]."""
    if suffolk_rows is None:
        raise Unsupported("this model belongs to a Target and runs only in its passes; load it again for other uses")
    if s_aux is not None:
        raise Unsupported("attention sinks are not supported")
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    terms = Terms(scaling, sliding_window, softcap, getattr(module, "layer_idx", 0))
    return suffolk_rows.attend(query, key, value, terms).transpose(1, 2), None


def _attend_span(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    span: Span,
    terms: Terms,
) -> torch.Tensor:
    """[1, heads, n, value width], the attention of one request's rows."""
    size = len(span.layout)
    heads, groups = query.shape[1], query.shape[1] // key.shape[1]
    folded = groups if size <= FOLDED_ROWS else 1
    kernel = query.device.type == "cpu" and key.shape[-1] == value.shape[-1] and terms.softcap is None
    split = kernel and span.splits(terms.window)
    skip, mask = (0, None) if split else span.mask(terms.window, folded, query.dtype, query.device)
    begin, end = span.first + skip, span.first + span.cached + len(span.layout.earlier) + size
    rows = query[:, :, span.begin : span.begin + size]
    keys, values = key[begin:end].transpose(0, 1)[None], value[begin:end].transpose(0, 1)[None]
    if folded == groups:
        rows = rows.reshape(1, heads // groups, groups * size, rows.shape[-1])
    if split:
        own = span.own_mask(folded, query.dtype, query.device)
        output = split_attention(rows, keys, values, own, span.cached, terms.scaling)
    elif terms.softcap is None:
        output = F.scaled_dot_product_attention(
            rows, keys, values, attn_mask=mask, scale=terms.scaling, enable_gqa=folded != groups
        )
    else:
        output = capped_attention(rows, keys, values, mask, terms.scaling, terms.softcap)
    return output.reshape(1, heads, size, output.shape[-1])


def capped_attention(
    rows: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float,
    softcap: float,
) -> torch.Tensor:
    """Attention with scores that tanh limits (Gemma 2). torch's fused attention does not have this."""
    groups = rows.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    scores = torch.tanh(rows @ keys.transpose(-1, -2) * (scaling / softcap)) * softcap
    if mask is not None:
        scores = scores + mask
    kind = torch.float64 if scores.dtype == torch.float64 else torch.float32
    return scores.softmax(-1, dtype=kind).to(values.dtype) @ values


AttentionInterface.register(NAME, attend)


def split_attention(
    rows: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, cached: int, scaling: float
) -> torch.Tensor:
    """[1, heads, rows, width], equal to ``F.scaled_dot_product_attention`` with a mask that hides no cached token.

    One part attends to the cached tokens without a mask, and the other part to the tree's own rows. Both are merged by their
    log-sum-exp, so the mask does not grow with the context. Measured gain: 3 to 7 % of the time of a pass with ``LEAST_PAIRS`` or
    more pairs (docs/design/measured-mechanisms.md). Small trees are faster with one mask.

    Args:
        rows: [1, heads, rows, width], on a CPU.
        keys, values: [1, heads, cached + own, width].
        mask: additive, [rows, own]; each row sees at least one of its own keys.
        cached: the number of keys that all rows see; 1 or more (torch's kernel divides by it).
    """
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    context, context_sum = attention(rows, keys[:, :, :cached], values[:, :, :cached], scale=scaling)
    own, own_sum = attention(rows, keys[:, :, cached:], values[:, :, cached:], attn_mask=mask, scale=scaling)
    share = torch.sigmoid(context_sum - own_sum)[..., None]  # weight of the context in the merged result
    return torch.lerp(own.to(share.dtype), context.to(share.dtype), share).to(rows.dtype)
