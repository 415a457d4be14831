"""A forward pass compiled by torch, for CPUs. One graph serves all numbers of rows, requests and cached tokens.

Attention writes keys and values to the pass's cache, and attends in the same way as a packed pass. Compiling fuses the operations
between attention and matrix products. It takes a minute at the first start.

Measured gain over 1 to 16 rows: 10 to 16 % of a pass of SmolLM2-135M, and 7 to 9 % of a pass of Qwen2.5-Coder-0.5B
(docs/design/measured-mechanisms.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.language_model import LanguageModel
from suffolk.serving.decoding.engine.model.pass_function import CompiledFunction, attending
from suffolk.serving.decoding.engine.model.pass_result import PassResult, fits_decoding
from suffolk.serving.decoding.engine.model.tree_attention import PackedRows, Terms
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout


class CompiledPasses:
    """Compiled passes over one cache. The first pass of two or more rows compiles. All caches share the compiled function."""

    def __init__(self, target: LanguageModel, cache: KVCache) -> None:
        """Raises Unsupported: the model is not on a CPU, or some of its layers share a cache."""
        if target.device.type != "cpu":
            raise Unsupported(f"the model is on {target.device}, and compiled passes are for CPUs")
        if None in target.shapes:
            raise Unsupported("some of its layers share the cache of another layer")
        self._target, self._cache = target, cache
        self._function = CompiledFunction.of(target, (), selects=False)

    def fits(self, layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> bool:
        return fits_decoding(layouts, wanted)

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> None:
        """Nothing to prepare: the first pass compiles."""

    def prepare_all(self, progress: Callable[[Sequence[int]], Iterable[int]]) -> None:
        """Nothing to prepare, as in ``prepare``."""

    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> PassResult:
        """Raises RuntimeError: torch cannot compile the model, or finds no C++ compiler."""
        packed, rows = self._target.place(self._cache, slots, layouts)
        with attending(_CachedRows(self._cache.layers.layers, rows)):
            return PassResult(*self._function(packed[:1], packed[1:2], None))


@dataclass(frozen=True, slots=True)
class _CachedRows:
    """The rows of a packed pass, with the cache's layers."""

    layers: Sequence[Any]
    rows: PackedRows

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, terms: Terms) -> torch.Tensor:
        keys, values = self.layers[terms.layer].update(key, value)
        return self.rows.attend(query, keys, values, terms).transpose(1, 2).contiguous()
