"""A model as one function of token ids and positions, which torch can compile to one graph for any number of rows.

The function calls an operator for each layer, ``suffolk::attend``. The operator gives the layer's queries, keys and values to the
attention of the pass that runs in this thread. That attention handles requests, cached tokens and the cache.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any, Protocol

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from transformers.cache_utils import DynamicCache, DynamicLayer

from suffolk.datastore.errors import NotFound
from suffolk.datastore.files import expand
from suffolk.serving.decoding.engine.model.language_model import LanguageModel
from suffolk.serving.decoding.engine.model.operators import define_operator
from suffolk.serving.decoding.engine.model.pass_result import run_model
from suffolk.serving.decoding.engine.model.tree_attention import Terms

log = logging.getLogger(__name__)


class PassAttention(Protocol):
    """The attention of one pass."""

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, terms: Terms) -> torch.Tensor:
        """Write the pass's keys and values to the cache, and attend: [1, rows, heads, value width], contiguous.

        ``query`` [1, heads, rows, width], ``key`` and ``value`` [1, key heads, rows, width].
        """


_attention: ContextVar[PassAttention] = ContextVar("suffolk_attention")

PassFunction = Callable[[torch.Tensor, torch.Tensor, "torch.Tensor | None"], tuple[torch.Tensor, "torch.Tensor | None"]]
"""(token ids [1, rows], positions [1, rows], wanted rows int64[wanted] or None for all rows) -> (logits, hidden states).

Logits are [wanted, vocab]. Hidden states of all rows are [rows, layers, width], or None without layers.
"""


@contextmanager
def attending(attention: PassAttention) -> Iterator[None]:
    """Let passes of this thread use ``attention``."""
    token = _attention.set(attention)
    try:
        yield
    finally:
        _attention.reset(token)


def pass_function(target: LanguageModel, layers: Sequence[int] = ()) -> PassFunction:
    """The model's pass, not compiled. ``layers``: layers whose hidden states are returned."""
    model, vocab_size, rows, layers = target.model, target.vocab_size, _OperatorRows(), tuple(layers)
    cache = DynamicCache(config=model.config)
    cache.layers = [_PassingLayer() for _ in cache.layers]

    def compute(
        ids: torch.Tensor, positions: torch.Tensor, wanted: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        found = run_model(model, ids, positions, cache, rows, vocab_size, layers, 0 if wanted is None else wanted)
        return found.logits, found.features

    return compute


class CompiledFunction:
    """A compiled ``PassFunction``; the first call compiles it. Safe to share between threads from then on."""

    @staticmethod
    def of(target: LanguageModel, layers: Sequence[int], selects: bool) -> CompiledFunction:
        """The function of ``target`` and ``layers``, made on first use and then stored in ``target``.

        ``selects``: whether it takes wanted rows. If so, the numbers of rows and of wanted rows must be different in the first
        call, because torch would treat equal numbers as one variable. Both must be above 1.
        """
        key = ("compiled", tuple(layers), selects)
        if key not in target.shared:
            target.shared[key] = CompiledFunction(target, layers)
        found: CompiledFunction = target.shared[key]
        return found

    def __init__(self, target: LanguageModel, layers: Sequence[int] = ()) -> None:
        _keep_compiled()
        self._name = target.name
        compute: Any = pass_function(target, layers)
        # torch stores graphs by code object and selects one by guards. No guard is needed here: the model does not change, and
        # inputs differ only in length. torch would also specialise for length 1, without need. So each model gets its own
        # code object.
        own = FunctionType(compute.__code__.replace(), compute.__globals__, "compute", None, compute.__closure__)
        options: dict[str, Any] = {"guard_filter_fn": _no_guards, "post_grad_custom_pre_pass": SharedProducts()}
        self._function = torch.compile(own, fullgraph=True, dynamic=True, options=options)
        self.is_compiled = False

    @torch.inference_mode()
    def __call__(
        self, ids: torch.Tensor, positions: torch.Tensor, wanted: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """See ``PassFunction``.

        Raises:
            RuntimeError: torch cannot compile the model, or finds no compiler.
        """
        # the graph expects separate tensors
        ids, positions, wanted = ids.clone(), positions.clone(), None if wanted is None else wanted.clone()
        if self.is_compiled:
            return self._function(ids, positions, wanted)  # type: ignore[no-any-return]
        log.info(
            "model %s: compiling its passes, a minute or more; later starts find most of it in %s",
            self._name,
            os.environ.get("TORCHINDUCTOR_CACHE_DIR", "torch's cache"),
        )
        begin = time.perf_counter()
        torch._dynamo.mark_dynamic(ids, 1)
        torch._dynamo.mark_dynamic(positions, 1)
        if wanted is not None:
            torch._dynamo.mark_dynamic(wanted, 0)
        result = self._function(ids, positions, wanted)
        self.is_compiled = True
        log.info("model %s: compiled in %.0f s", self._name, time.perf_counter() - begin)
        return result  # type: ignore[no-any-return]


def _keep_compiled() -> None:
    """Let torch keep compiled code in the user's cache folder. torch's default folder, in /tmp, is lost when a machine restarts."""
    try:
        folder = expand(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "suffolk" / "compiled"
    except NotFound:
        return  # there is no home
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))


def _no_guards(guards: Sequence[object]) -> list[bool]:
    return [False] * len(guards)


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


def _attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *terms: Any) -> torch.Tensor:
    return _attention.get().attend(query, key, value, Terms(*terms))


def _shape_of_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *terms: Any) -> torch.Tensor:
    batch, heads, rows, _ = query.shape
    return query.new_empty((batch, rows, heads, value.shape[-1]))


define_operator(
    "attend(Tensor query, Tensor key, Tensor value, float scaling, int? window, float? softcap, int layer) -> Tensor",
    _attend,
    _shape_of_attention,
    devices=("CPU", "CUDA"),
)


class SharedProducts(CustomGraphPass):
    """A pass of torch's compiler: equal operations on equal inputs become one."""

    def __call__(self, graph: torch.fx.Graph) -> None:
        found: dict[tuple[Any, ...], torch.fx.Node] = {}
        for node in list(graph.nodes):
            if not _is_pure(node):
                continue
            key = (node.target, _hashable(node.args), _hashable(node.kwargs))
            first = found.setdefault(key, node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph.erase_node(node)

    def uuid(self) -> Any:
        return get_hash_for_files((__file__,))


def _is_pure(node: torch.fx.Node) -> bool:
    operator = node.target
    if node.op != "call_function" or not isinstance(operator, torch._ops.OpOverload) or operator.namespace != "aten":
        return False
    return not operator._schema.is_mutable and torch.Tag.nondeterministic_seeded not in operator.tags


def _hashable(value: Any) -> Any:
    """``value`` with tuples in place of lists and dictionaries. Numbers come with their types, because 1 == 1.0."""
    if isinstance(value, dict):
        return tuple((key, _hashable(each)) for key, each in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    return (type(value), value) if isinstance(value, (bool, int, float)) else value
