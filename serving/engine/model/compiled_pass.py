"""A forward pass compiled by torch, for CPUs. One graph serves all numbers of rows, requests and cached tokens.

The graph calls an operator for each layer, ``suffolk::attend``, which writes keys and values to the pass's cache and attends as a
packed pass does. Its only dynamic size is the number of rows. Compiling fuses the operations between attention and matrix
products. It takes a minute at the first start.

Measured gain over 1 to 16 rows: 10 to 16 % of a pass of SmolLM2-135M, and 7 to 9 % of a pass of Qwen2.5-Coder-0.5B
(docs/design/measured-mechanisms.md).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextvars import ContextVar
from types import FunctionType
from typing import Any

import torch
from transformers.cache_utils import DynamicCache, DynamicLayer

from suffolk.datastore.errors import Unsupported
from suffolk.serving.engine.model.kv_cache import KVCache
from suffolk.serving.engine.model.language_model import LanguageModel
from suffolk.serving.engine.model.operators import define_operator
from suffolk.serving.engine.model.pass_result import PassResult
from suffolk.serving.engine.model.tree_attention import PackedRows, Terms
from suffolk.serving.engine.model.tree_layout import TreeLayout

log = logging.getLogger(__name__)

_pass: ContextVar[tuple[list[Any], PackedRows]] = ContextVar("suffolk_pass")
"""The cache's layers and the rows of this thread's pass."""


class CompiledPass:
    """A compiled pass over the rows of several requests. Its first call, of two rows or more, compiles it.

    Once compiled it is safe to share between threads if each has its own cache.
    """

    @staticmethod
    def of(target: LanguageModel) -> CompiledPass:
        """The compiled pass of ``target``, made on first use and then stored in ``target``.

        Raises:
            Unsupported: the model is not on a CPU, or some of its layers share a cache.
        """
        if not target.compiled:
            target.compiled.append(CompiledPass(target))
        compiled: CompiledPass = target.compiled[0]
        return compiled

    def __init__(self, target: LanguageModel) -> None:
        if target.device.type != "cpu":
            raise Unsupported(f"the model is on {target.device}, and compiled passes are for CPUs")
        if None in target.shapes:
            raise Unsupported("some of its layers share the cache of another layer")
        self._target = target
        self._compiled = _compile(target)
        self._is_compiled = False

    def forward(self, cache: KVCache, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> PassResult:
        """As ``LanguageModel.forward``, with the logits of all rows.

        Raises:
            RuntimeError: torch cannot compile the model, or finds no C++ compiler.
        """
        packed, rows = self._target.place(cache, slots, layouts)
        token = _pass.set((cache.layers.layers, rows))
        try:
            return PassResult(self._call(packed), None)
        finally:
            _pass.reset(token)

    @torch.inference_mode()
    def _call(self, packed: torch.Tensor) -> torch.Tensor:
        ids, positions = packed[0][None].clone(), packed[1][None].clone()  # the graph expects separate tensors
        if self._is_compiled:
            return self._compiled(ids, positions)  # type: ignore[no-any-return]
        log.info(
            "model %s: compiling its passes, a minute or more; later starts find most of it in TORCHINDUCTOR_CACHE_DIR",
            self._target.name,
        )
        begin = time.perf_counter()
        for numbers in (ids, positions):
            torch._dynamo.mark_dynamic(numbers, 1)
        result = self._compiled(ids, positions)
        self._is_compiled = True
        log.info("model %s: compiled in %.0f s", self._target.name, time.perf_counter() - begin)
        return result  # type: ignore[no-any-return]


class _OperatorRows:
    """The rows of the current pass; attention calls the operator."""

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, terms: Terms) -> torch.Tensor:
        output: torch.Tensor = torch.ops.suffolk.attend(query, key, value, *terms)
        return output.transpose(1, 2)


class _PassingLayer(DynamicLayer):  # type: ignore[no-untyped-call]  # transformers is not typed throughout
    """A cache layer that returns the pass's keys and values; the operator writes them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return key_states, value_states

    def get_seq_length(self) -> int:
        return 0


def _compile(target: LanguageModel) -> Any:
    """A compiled function of token ids and positions, [1, rows] each, to logits [rows, vocab]."""
    model, vocab_size, rows = target.model, target.vocab_size, _OperatorRows()
    cache = DynamicCache(config=model.config)
    cache.layers = [_PassingLayer() for _ in cache.layers]

    def compute(ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        output = model(input_ids=ids, position_ids=positions, past_key_values=cache, use_cache=True, suffolk_rows=rows)
        logits: torch.Tensor = output.logits[0, :, :vocab_size]
        return logits

    # torch stores graphs by code object and selects one by guards. No guard is needed here: the model does not change, and
    # inputs differ only in length. Length 1 is no exception, although torch would specialise it. So each model gets its own
    # code object.
    own = FunctionType(compute.__code__.replace(), compute.__globals__, "compute", None, compute.__closure__)
    return torch.compile(own, fullgraph=True, dynamic=True, options={"guard_filter_fn": _no_guards})


def _no_guards(guards: Sequence[object]) -> list[bool]:
    return [False] * len(guards)


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *terms: Any) -> torch.Tensor:
    """[1, rows, heads, value width], contiguous; ``key`` and ``value`` are those of the pass."""
    layers, rows = _pass.get()
    found = Terms(*terms)
    keys, values = layers[found.layer].update(key, value)
    return rows.attend(query, keys, values, found).transpose(1, 2).contiguous()


def _shape_of_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *terms: Any) -> torch.Tensor:
    batch, heads, rows, _ = query.shape
    return query.new_empty((batch, rows, heads, value.shape[-1]))


define_operator(
    "attend(Tensor query, Tensor key, Tensor value, float scaling, int? window, float? softcap, int layer) -> Tensor",
    _attend,
    _shape_of_attention,
)
