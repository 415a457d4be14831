"""Graph passes: one function computes the rows of all requests, whether of trees, prompts or plain decoding. CUDA captures it.

The model is compiled once, for any number of rows (``pass_function.py``), with attention by Triton kernels
(``row_attention.py``). The pass is captured once for each number in ``ROWS``, and a pass is padded to the next larger number.
Everything else that differs between passes is read from the device's memory. The device may also end the step
(``device_step.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from suffolk.serving.decoding.engine.model.device_step import DeviceStep, Drafts, SampleRows, Walks
from suffolk.serving.decoding.engine.model.graph_capture import CapturedPass, GraphMemory, capture_pass
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.language_model import LanguageModel
from suffolk.serving.decoding.engine.model.pass_function import CompiledFunction, PassFunction, attending, pass_function
from suffolk.serving.decoding.engine.model.pass_result import PassResult, SpecialPasses
from suffolk.serving.decoding.engine.model.row_attention import Partials, RowAttention, RowTables, rows_of_tile
from suffolk.serving.decoding.engine.model.row_plan import Sizes, empty_plan, plan_rows
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain
from suffolk.serving.decoding.engine.user_code_errors import message_line


class JoinedLinear(torch.nn.Linear):
    """A ``torch.nn.Linear`` whose weights are a part of a larger array that further layers share."""

    joined: tuple[torch.Tensor, torch.Tensor | None]
    part: slice

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  # torch's own name for it
        if not torch.compiler.is_compiling():
            return super().forward(input)
        return F.linear(input, *self.joined)[..., self.part]


def join_layers(target: LanguageModel) -> int:
    """Join the layers of ``target`` that read the same input, where this is possible. Returns the number of joined layers.

    No other thread may use the model. Only layers that are exactly ``torch.nn.Linear``, without hooks, qualify.
    """
    groups = _find_groups(target)
    for group in groups:
        _join(group)
    return sum(map(len, groups))


@torch.inference_mode(False)
@torch.no_grad()
def _join(layers: Sequence[torch.nn.Linear]) -> None:
    weight = torch.cat([layer.weight for layer in layers])
    bias = None if layers[0].bias is None else torch.cat([layer.bias for layer in layers])
    begin = 0
    for layer in layers:
        part = slice(begin, begin + layer.out_features)
        layer.weight.data = weight[part]
        if bias is not None:
            layer.bias.data = bias[part]
        layer.__class__ = JoinedLinear
        assert isinstance(layer, JoinedLinear)
        layer.joined, layer.part = (weight, bias), part
        begin = part.stop


def _find_groups(target: LanguageModel) -> list[list[torch.nn.Linear]]:
    """Layers of one module that read the same input in a pass over one token."""
    parents = {child: parent for parent in target.model.modules() for child in parent.children() if _is_plain(child)}
    inputs: dict[Any, torch.Tensor] = {}

    def note(layer: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        inputs[layer] = arguments[0]  # kept, so that no later tensor has the same id

    hooks = [layer.register_forward_pre_hook(note) for layer in parents]
    try:
        target.forward(target.new_cache(1, 1), [0], [chain(np.zeros(1, np.int64))], [1])
    finally:
        for hook in hooks:
            hook.remove()
    groups: dict[tuple[Any, ...], list[torch.nn.Linear]] = {}
    for layer, read in inputs.items():
        kind = (parents[layer], id(read), layer.in_features, layer.weight.dtype, layer.bias is None)
        groups.setdefault(kind, []).append(layer)
    return [group for group in groups.values() if len(group) > 1]


def _is_plain(layer: torch.nn.Module) -> bool:
    if type(layer) is not torch.nn.Linear or "forward" in vars(layer):
        return False
    return not (layer._forward_hooks or layer._forward_pre_hooks) and type(layer.weight) is torch.nn.Parameter


log = logging.getLogger(__name__)

ROWS = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 512)
"""Numbers of rows that passes are captured for. Larger passes are packed."""
MOST_WANTED = 256
"""The most rows whose logits a pass returns, because a vocabulary of logits for every row of a prompt takes much memory."""
_LEAST_PARTS = 4096
"""Least number of partial results of attention that fit. Passes that would have more get larger work items (``row_plan.py``)."""


class GraphPasses(SpecialPasses):
    """The graph passes over one cache. Not thread-safe."""

    def __init__(
        self,
        target: LanguageModel,
        cache: KVCache,
        layers: tuple[int, ...],
        is_compiled: bool = True,
        sample: SampleRows | None = None,
    ) -> None:
        """The kernels must serve the model (``kernel_problem``). Joins linear layers of the model, if ``is_compiled``.

        Args:
            layers: layers whose hidden states are returned.
            is_compiled: whether torch compiles the model; the first pass compiles it.
            sample: samples the tokens of rows, for ``step``.
        """
        self._target, self._cache = target, cache
        self._sizes = Sizes(rows_of_tile(target))
        parts = max(_LEAST_PARTS, self._sizes.most_parts(ROWS[-1], cache.capacity))
        extra = 0 if sample is None else DeviceStep.extra(MOST_WANTED)
        self._tables = RowTables(ROWS[-1], MOST_WANTED, parts, cache.spare, target.device, extra)
        self._step = None if sample is None else DeviceStep(self._tables, cache, sample, ROWS)
        self._partials = Partials(parts, target.device)
        self._parts = parts
        self._function: PassFunction = (
            _compiled_function(target, layers) if is_compiled else pass_function(target, layers)
        )
        self._captured: dict[int, CapturedPass] = {}
        self._memory = GraphMemory.on(target.device, ROWS[-1], MOST_WANTED) if target.device.type == "cuda" else None

    def fits(self, layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> bool:
        small = sum(map(len, layouts)) <= ROWS[-1] and sum(wanted) <= MOST_WANTED
        return small and not any(len(layout.earlier) for layout in layouts)

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> None:
        self._prepare(_padded(layouts))

    def prepare_all(self, progress: Callable[[Sequence[int]], Iterable[int]]) -> None:
        for rows in progress(ROWS[::-1]):  # smaller captures use memory that larger captures have left
            self._prepare(rows)

    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> PassResult:
        return self._forward(slots, layouts, wanted)[0]

    @property
    def has_steps(self) -> bool:
        """Whether ``step`` may be called."""
        return self._step is not None

    def step(
        self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int], drafts: Drafts
    ) -> tuple[PassResult, Walks]:
        """Make a pass over rows that fit, and end its step on the device. This moves accepted rows to the end of each text."""
        assert self._step is not None
        self._step.load(drafts)
        found, logits = self._forward(slots, layouts, wanted)
        return found, self._step.run(logits, drafts)

    def _forward(
        self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]
    ) -> tuple[PassResult, torch.Tensor]:
        """The result, and its logits before padding is cut off."""
        cache = self._cache
        plan = plan_rows(cache.lengths, cache.capacity, slots, layouts, self._sizes, self._parts)
        ends = np.cumsum([len(layout) for layout in layouts])
        chosen = np.concatenate([np.arange(end - count, end) for end, count in zip(ends, wanted, strict=True)])
        rows = _padded(layouts)
        self._compile()
        self._tables.load(plan, chosen, rows)
        captured = self._captured.get(rows)
        result = self._compute(rows) if captured is None else captured.replay()
        return result.head(plan.rows.shape[1], len(chosen)), result.logits

    def _prepare(self, rows: int) -> None:
        """Capture the pass of this many rows, over rows of padding."""
        self._compile()
        if self._memory is None or rows in self._captured:
            return
        if self._step is not None:
            self._step.clear()
        self._tables.load(empty_plan(), np.empty(0, np.int64), rows)
        captured = self._captured[rows] = capture_pass(lambda: self._compute(rows), self._memory, self._target.device)
        if self._step is not None:
            self._capture_step(captured.result.logits, self._step, self._memory)

    def _capture_step(self, logits: torch.Tensor, step: DeviceStep, memory: GraphMemory) -> None:
        """Capture the steps after passes that give ``logits``. If this fails, steps end on the host from now on."""
        try:
            step.capture(logits, memory)
        except RuntimeError as error:
            log.warning("model %s: steps cannot end on the device (%s)", self._target.name, message_line(error))
            self._step = None

    def _compile(self) -> None:
        """Compile the function with the largest pass, in which the numbers of rows and of wanted rows differ."""
        if isinstance(self._function, CompiledFunction) and not self._function.is_compiled:
            self._tables.load(empty_plan(), np.empty(0, np.int64), ROWS[-1])
            self._compute(ROWS[-1])

    @torch.inference_mode()
    def _compute(self, rows: int) -> PassResult:
        """The result for the loaded rows, padded to ``rows``."""
        tables = self._tables
        attention = RowAttention(self._cache.own_layers, tables, self._partials, rows, self._sizes)
        ids, positions = tables.rows[0, :rows], tables.rows[1, :rows]
        with attending(attention):
            return PassResult(*self._function(ids[None], positions[None], tables.wanted[: min(rows, MOST_WANTED)]))


def _compiled_function(target: LanguageModel, layers: tuple[int, ...]) -> CompiledFunction:
    if "joined" not in target.shared:
        target.shared["joined"] = join_layers(target)
    return CompiledFunction.of(target, layers, selects=True)


def _padded(layouts: Sequence[TreeLayout]) -> int:
    """The smallest number in ``ROWS`` that is large enough for all rows."""
    count = sum(map(len, layouts))
    return next(rows for rows in ROWS if rows >= count)
