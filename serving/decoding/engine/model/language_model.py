"""A causal LM of transformers with tree attention, and its forward passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers.cache_utils import DynamicCache

from suffolk.serving.decoding.engine.model.kv_cache import KVCache, Shapes
from suffolk.serving.decoding.engine.model.memory import memory_guard, to_device
from suffolk.serving.decoding.engine.model.pass_result import PassResult, run_model
from suffolk.serving.decoding.engine.model.thread_waits import ThreadWaits
from suffolk.serving.decoding.engine.model.tree_attention import PackedRows, find_places
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain

PREFILL_CHUNK = 512
"""Prompt tokens per pass; more would keep running requests waiting."""


@dataclass(frozen=True, slots=True)
class LanguageModel:
    """A causal LM with tree attention. Safe to share between threads if each has its own cache.

    Attributes:
        name: its name in messages.
        model: the transformers model, in evaluation mode.
        vocab_size: number of ids, from 0 on, that can be both sampled and read as input.
        shapes: the shape of each layer's cache.
        same_bits: whether a token's logits have the same bits in any packed pass, so that drafts change no text
            (``same_bits.py``).
        shared: objects for all caches: compiled functions (``pass_function.py``), the kinds of passes that were tried
            (``passes.py``), and the compiler of grammars (``grammar_compiler.py``).
        waits: how torch's CPU threads wait for each other in its passes.
    """

    name: str
    model: Any = field(repr=False)
    vocab_size: int
    shapes: Shapes = field(repr=False)
    same_bits: bool = field(default=False, compare=False, kw_only=True)
    shared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False, kw_only=True)
    waits: ThreadWaits = field(default_factory=ThreadWaits, repr=False, compare=False, kw_only=True)

    @property
    def device(self) -> torch.device:
        return self.model.device  # type: ignore[no-any-return]

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype  # type: ignore[no-any-return]

    @property
    def layers(self) -> int:
        """The number of layers. Hidden state 0 is the embedding; the last hidden state is the input of the output layer."""
        return int(self.model.config.get_text_config(decoder=True).num_hidden_layers)

    @property
    def hidden_size(self) -> int:
        """The width of its hidden states."""
        return int(self.model.config.get_text_config(decoder=True).hidden_size)

    def new_cache(self, slots: int, capacity: int) -> KVCache:
        """An empty cache for ``slots`` requests of ``capacity`` tokens each, rows of rejected nodes included.

        Raises:
            ResourceExhausted: no memory for it.
        """
        with memory_guard(f"cache for {slots} x {capacity} tokens"):
            layers = DynamicCache(config=self.model.config)
            return KVCache(layers, self.shapes, slots, capacity, self.dtype, self.device)

    @torch.inference_mode()
    def forward(
        self,
        cache: KVCache,
        slots: Sequence[int],
        layouts: Sequence[TreeLayout],
        wanted: Sequence[int],
        layers: Sequence[int] = (),
    ) -> PassResult:
        """One pass over the rows of several requests, each after the cached tokens of its slot.

        The cache's lengths do not change, because the caller decides which rows to keep.

        Args:
            cache: a cache of this model; it receives keys and values of all rows.
            slots: one slot for each request.
            layouts: the rows of each request.
            wanted: for each request, the number of its last rows whose logits are returned, in order.
            layers: layers whose hidden states are returned, each 0..``self.layers``.
        """
        packed, rows = self.place(cache, slots, layouts)
        ends = np.cumsum([len(layout) for layout in layouts])
        chosen = np.concatenate([np.arange(end - count, end) for end, count in zip(ends, wanted, strict=True)])
        kept = 0 if len(chosen) == packed.shape[1] else to_device(chosen, self.device)
        return run_model(self.model, packed[:1], packed[1:2], cache.layers, rows, self.vocab_size, layers, kept)

    def place(
        self, cache: KVCache, slots: Sequence[int], layouts: Sequence[TreeLayout]
    ) -> tuple[torch.Tensor, PackedRows]:
        """Assign cache rows to the next pass.

        Returns int64[3, rows] (token ids, positions, cache rows), and the attention of the rows.
        """
        found = find_places(cache.lengths, cache.capacity, slots, layouts)
        ids = np.concatenate([layout.tokens for layout in layouts])
        packed = to_device(np.stack([ids, found.positions, found.rows]), self.device)
        cache.place(packed[2])
        return packed, PackedRows(found.spans, self.same_bits)

    def prefill(
        self, tokens: Sequence[int] | npt.NDArray[np.integer[Any]], cache: KVCache, slot: int = 0
    ) -> torch.Tensor:
        """Append ``tokens`` to a slot. Returns the logits [1, vocab] after the last of them."""
        ids = np.asarray(tokens, np.int64)
        for start in range(0, len(ids), PREFILL_CHUNK):
            part = chain(ids[start : start + PREFILL_CHUNK])
            logits = self.forward(cache, [slot], [part], [1]).logits
            cache.lengths[slot] += len(part)
        return logits

    def synchronize(self) -> None:
        """Wait for the device. A clock then measures the work and not its launch."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
