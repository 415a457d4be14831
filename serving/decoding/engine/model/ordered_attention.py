"""Attention of packed passes on CPUs, by the kernel of ``csrc/kernels/tree_attention.h``.

It adds up the terms of a row's keys in the order of their positions, in pieces with fixed borders. So a token's result does not
depend, bit for bit, on the draft tree around it, on other requests, or on the division of its text into passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore import _native
from suffolk.datastore.errors import Internal
from suffolk.serving.decoding.engine.model.skinny_gemm import ELEMENTS
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout


class Placed(Protocol):
    """One request's rows in a pass, as ``tree_attention.Span``."""

    layout: TreeLayout
    begin: int
    first: int
    cached: int


@dataclass(frozen=True, slots=True)
class OrderedRows:
    """The rows of a pass, and the cache rows of their paths. All arrays are int64.

    Attributes:
        spans: [requests, 5], the fields of ``AttentionSpan`` (csrc/kernels/tree_attention.h).
        offsets: [rows + 1], where each row's path begins in ``ancestors``; chains have none.
        ancestors: cache rows, in order of depth.
    """

    spans: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    ancestors: npt.NDArray[np.int64]

    @staticmethod
    def of(spans: Sequence[Placed]) -> OrderedRows:
        """The rows of ``spans``. Raises Internal unless each row of a tree sees exactly one token at each depth up to its own."""
        table = np.empty((len(spans), 5), np.int64)
        sizes = np.zeros(sum(len(span.layout) for span in spans) + 1, np.int64)
        paths = [np.empty(0, np.int64)]
        for entry, span in zip(table, spans, strict=True):
            layout, visible = span.layout, span.layout.visible
            taken = span.cached if visible is not None else span.cached + len(layout.earlier)
            entry[:] = span.begin, len(layout), span.first, taken, visible is None
            if visible is not None:
                rows, cells = np.nonzero(visible)  # a row's ancestors have lower cells than the row
                paths.append(span.first + span.cached + cells)
                counts = np.bincount(rows, minlength=len(layout))
                if (counts != layout.depths + 1).any():
                    raise Internal("a row of a draft tree does not see one token at each depth")
                sizes[span.begin + 1 : span.begin + 1 + len(layout)] = counts
        return OrderedRows(table, np.cumsum(sizes), np.concatenate(paths))

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scaling: float,
        window: int | None,
        softcap: float | None,
    ) -> torch.Tensor:
        """[1, heads, rows, value width]; tensors as in ``tree_attention.attend``. REQUIRES: ``supports`` them."""
        if query.stride(-1) != 1:
            query = query.contiguous()
        _, heads, rows, width = query.shape
        out = query.new_empty((rows, heads, value.shape[-1]))
        _native.attend(
            ELEMENTS[query.dtype],
            query.data_ptr(),
            query.stride(2),
            query.stride(1),
            key.data_ptr(),
            value.data_ptr(),
            out.data_ptr(),
            heads,
            key.shape[1],
            width,
            value.shape[-1],
            self.spans.ctypes.data,
            len(self.spans),
            self.offsets.ctypes.data,
            self.ancestors.ctypes.data,
            scaling,
            softcap or 0.0,
            window or 0,
            torch.get_num_threads(),
        )
        return out.transpose(0, 1)[None]


def supports(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether the kernel can compute this attention: on a CPU, in fp32, bf16, or fp16 if the processor can convert it."""
    element = ELEMENTS.get(query.dtype)
    if element is None or not query.is_cpu or not _native.skinny_gemm_supports(element):
        return False
    return key.dtype == value.dtype == query.dtype and key.is_contiguous() and value.is_contiguous()
