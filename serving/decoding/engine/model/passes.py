"""The kinds of forward pass, and the choice of one for a model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import add
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

from suffolk.datastore.checks import check_choice
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Unsupported
from suffolk.serving.decoding.engine.model.device_step import Drafts, SampleRows, Walks
from suffolk.serving.decoding.engine.model.graph_capture import GraphMemory
from suffolk.serving.decoding.engine.model.graph_pass import GraphPasses
from suffolk.serving.decoding.engine.model.grid_attention import Bucket
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.language_model import LanguageModel
from suffolk.serving.decoding.engine.model.pass_function import CompiledFunction, attending
from suffolk.serving.decoding.engine.model.pass_result import MOST_ROWS, PassResult, SpecialPasses
from suffolk.serving.decoding.engine.model.probe import LOW_PRECISION_TOLERANCE, deviation
from suffolk.serving.decoding.engine.model.row_attention import kernel_problem, power_of_two
from suffolk.serving.decoding.engine.model.static_pass import StaticPass
from suffolk.serving.decoding.engine.model.tree_attention import PackedRows, Terms
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain, lay_out
from suffolk.serving.decoding.engine.user_code_errors import message_line

log = logging.getLogger(__name__)

_Make = Callable[[KVCache], SpecialPasses]

KINDS = ("auto", "packed", "captured", "compiled", "graph")
_ON_CUDA = "captured"
"""The kind that ``auto`` selects on CUDA. Graph passes shall replace it when they are measured on CUDA."""
_LEAST_KEYS = 256
_MOST_PASSES = 64
"""The most static passes that are kept. A further pass replaces the least recently used."""
_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-2}  # many models normalise in fp32, whatever their dtype


class Passes:
    """The forward passes over one cache. Not thread-safe.

    If a kind cannot run a pass, for example over a long prompt, the pass is packed.

    - ``packed``: any shape.
    - ``captured``: static shapes (``static_pass.py``), captured as graphs on CUDA and run uncaptured elsewhere.
    - ``compiled``: one compiled graph for all sizes, on CPUs (``CompiledPasses``).
    - ``graph``: compiled, captured on CUDA for a dozen numbers of rows, with Triton kernels (``graph_pass.py``). Not run on
      CUDA yet. If compiling fails, graph passes are captured uncompiled. If this fails too, the kind is ``captured`` or
      ``packed``, with a warning.
    - ``auto``: captured on CUDA, packed elsewhere. A model that cannot be captured is packed, with a warning.

    Attributes:
        kind: the kind in use; ``uncompiled graph`` for graph passes that are not compiled.
        special: the passes of kind ``kind``; None for packed passes.
    """

    def __init__(
        self,
        target: LanguageModel,
        cache: KVCache,
        kind: str = "auto",
        layers: Sequence[int] = (),
        prepare_all: bool = False,
        sample: SampleRows | None = None,
    ) -> None:
        """Checks small passes of the kind against packed ones. Compiling takes a minute or more.

        Args:
            layers: layers whose hidden states all passes return.
            prepare_all: capture all shapes that are known beforehand, so that no pass waits for a capture.
            sample: samples the tokens of rows, for ``step``.

        Raises:
            InvalidArgument: an unknown kind.
            Unsupported: the model's ``captured`` or ``compiled`` passes fail or differ from packed ones; or the kind is ``graph``
                and the model is not on CUDA.
        """
        check_choice("passes", kind, KINDS)
        require_states(target, kind, layers)
        self._target, self._cache, self._asked, self._layers = target, cache, kind, tuple(layers)
        self.special: SpecialPasses | None
        self._left = self._ways(kind, sample)
        self._take_next()
        if prepare_all:
            self._prepare(lambda special: special.prepare_all(partial(_show_progress, target.name)))

    def _ways(self, kind: str, sample: SampleRows | None) -> list[tuple[str, _Make]]:
        """The kinds to try, in order, and how each is made."""
        target, layers = self._target, self._layers
        if kind == "auto":
            kind = _ON_CUDA if target.device.type == "cuda" else "packed"
        captured: tuple[str, _Make] = ("captured", lambda cache: StaticPasses(target, cache, layers))
        if kind == "graph":
            problem = kernel_problem(target)
            if problem is not None:
                self._refuse(kind, problem, "captured")
                return [captured]
            return [
                ("graph", lambda cache: GraphPasses(target, cache, layers, sample=sample)),
                (
                    "uncompiled graph",
                    lambda cache: GraphPasses(target, cache, layers, is_compiled=False, sample=sample),
                ),
                captured,
            ]
        compiled: tuple[str, _Make] = ("compiled", lambda cache: CompiledPasses(target, cache))
        return [each for each in (captured, compiled) if each[0] == kind]

    def _take_next(self) -> None:
        """Take the next kind that works, or else packed passes."""
        while self._left:
            self.kind, make = self._left.pop(0)
            problem = self._known_problem(self.kind) or _problem(self._target, make)
            if problem is None:
                self.special = make(self._cache)
                return
            self._refuse(self.kind, problem, self._next)
        self.special, self.kind = None, "packed"

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> None:
        """Capture the graph that ``forward`` with the same arguments needs. A clock around ``forward`` then excludes the capture.
        On a CPU, decide how threads wait in the pass.

        Raises:
            Unsupported: the kind is ``captured``, and the pass cannot be captured.
        """
        if self._target.device.type == "cpu":
            self._target.waits.update()
        self._prepare(lambda special: special.prepare(slots, layouts) if special.fits(layouts, wanted) else None)

    def _prepare(self, prepare: Callable[[SpecialPasses], None]) -> None:
        while self.special is not None:
            try:
                prepare(self.special)
                return
            except RuntimeError as error:  # from CUDA, even if memory for the graph is lacking
                self._refuse(self.kind, message_line(error), self._next)
                self._take_next()

    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> PassResult:
        """The same as ``LanguageModel.forward``. The next pass may overwrite the result."""
        if self.special is not None and self.special.fits(layouts, wanted):
            return self.special.forward(slots, layouts, wanted)
        return self._target.forward(self._cache, slots, layouts, wanted, self._layers)

    @property
    def has_steps(self) -> bool:
        """Whether ``step`` may end steps on the device."""
        return isinstance(self.special, GraphPasses) and self.special.has_steps

    def step(
        self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int], drafts: Drafts
    ) -> tuple[PassResult, Walks | None]:
        """The same as ``forward``, and then the end of the step on the device (``GraphPasses.step``). None if the pass is
        packed."""
        if isinstance(self.special, GraphPasses) and self.special.fits(layouts, wanted):
            return self.special.step(slots, layouts, wanted, drafts)
        return self.forward(slots, layouts, wanted), None

    @property
    def _next(self) -> str:
        return self._left[0][0] if self._left else "packed"

    def _known_problem(self, kind: str) -> str | None:
        """Why passes of this ``kind`` failed for another cache of the target."""
        return self._target.shared.get(("problem", kind, self._layers))

    def _refuse(self, kind: str, problem: str, other: str) -> None:
        """Log once for each target that ``kind`` fails. Raises Unsupported if the caller accepts no other kind."""
        name = self._target.name
        if self._asked in ("captured", "compiled"):
            raise Unsupported(f"model {name}: its passes cannot be {kind} ({problem}); use packed passes")
        if self._known_problem(kind) is None:
            self._target.shared["problem", kind, self._layers] = problem
            log.warning("model %s: %s passes fail (%s); using %s ones", name, kind, problem, other)


def require_states(target: LanguageModel, kind: str, layers: Sequence[int]) -> None:
    """Raise Unsupported if ``layers`` are wanted and passes of ``kind`` return no hidden states."""
    if kind == "compiled" and layers:
        raise Unsupported(
            f"model {target.name}: its passes cannot be compiled (compiled passes give no hidden states, which a drafter "
            "needs); use packed passes"
        )


def bucket_for(cache: KVCache, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> Bucket:
    """The smallest bucket for these rows. Its sizes are powers of two, capped by the cache's sizes."""
    sizes = list(map(len, layouts))  # lists: numpy takes longer for few requests
    keys = max(map(add, map(cache.lengths.item, slots), sizes))
    return Bucket(
        rows=power_of_two(sum(sizes)),
        slots=min(power_of_two(max(slots) + 1), cache.slots),
        cells=min(power_of_two(max(sizes)), cache.capacity),
        keys=min(max(power_of_two(keys), _LEAST_KEYS), cache.capacity),
    )


class StaticPasses(SpecialPasses):
    """The static passes over one cache, by bucket. On CUDA their graphs share memory and one array of logits.

    No pass is captured beforehand, because there are too many shapes.
    """

    def __init__(self, target: LanguageModel, cache: KVCache, layers: tuple[int, ...]) -> None:
        cache.write_finite()
        self._target, self._cache, self._layers = target, cache, layers
        self._passes: dict[tuple[int, int, Bucket], StaticPass] = {}
        self._memory = GraphMemory.on(target.device, MOST_ROWS, MOST_ROWS) if target.device.type == "cuda" else None

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> None:
        found = self._find(slots, layouts)
        if self._memory is not None and not found.is_captured:
            found.load(slots, layouts)
            found.capture(self._memory)

    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> PassResult:
        found, rows = self.load(slots, layouts)
        return found.run().head(rows, rows)

    def load(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> tuple[StaticPass, int]:
        """The pass for these rows, loaded with them, and the number of rows."""
        found = self._find(slots, layouts)
        return found, found.load(slots, layouts)

    def _find(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> StaticPass:
        cache = self._cache
        bucket = bucket_for(cache, slots, layouts)
        key = (cache.slots, cache.capacity, bucket)
        found = self._passes.pop(key, None) or StaticPass(self._target, cache, bucket, self._layers)
        self._passes[key] = found  # ordered by last use
        if len(self._passes) > _MOST_PASSES:
            del self._passes[next(iter(self._passes))]
        return found


class CompiledPasses(SpecialPasses):
    """Forward passes over one cache that torch compiled, for CPUs. The first pass compiles, and needs two rows or more.

    One graph serves all numbers of rows, requests and cached tokens. All caches share the compiled function. Attention writes
    keys and values to the cache and attends as a packed pass does. Compiling fuses the operations between attention and matrix
    products. It takes a minute at the first start.

    Measured gain over 1 to 16 rows: 10 to 16 % of a pass of SmolLM2-135M, and 7 to 9 % of a pass of Qwen2.5-Coder-0.5B
    (docs/design/measured-mechanisms.md).
    """

    def __init__(self, target: LanguageModel, cache: KVCache) -> None:
        """Raises Unsupported: the model is not on a CPU, or some of its layers share a cache."""
        if target.device.type != "cpu":
            raise Unsupported(f"the model is on {target.device}, and compiled passes are for CPUs")
        if None in target.shapes:
            raise Unsupported("some of its layers share the cache of another layer")
        self._target, self._cache = target, cache
        self._function = CompiledFunction.of(target, (), selects=False)

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


def _show_progress(name: str, sizes: Sequence[int]) -> Iterable[int]:
    """``sizes``, one by one. A progress bar counts them if standard error is a terminal."""
    console = Console(stderr=True)
    return track(sizes, f"{name}: capturing passes", console=console, disable=not console.is_terminal, transient=True)


def _problem(target: LanguageModel, make: _Make) -> str | None:
    """The reason why the passes that ``make`` returns fail for the model; None if they work.

    Checks two passes. The first reads a small tree of one request and a row of another, with an unused slot between them. The
    second reads one row.
    """
    vocab = target.vocab_size
    ids = (np.arange(12) * 7919 + 17) % vocab
    parents = np.array([-1, 0, -1, 2, 1], np.int32)
    tree = DraftTree(ids[:5].astype(np.int32), parents, np.ones(5, np.float32), np.ones(5, np.uint32))
    layouts = [lay_out(int(ids[9]), tree), chain(ids[10:11])]
    cache = target.new_cache(3, 24)
    target.prefill(ids[:9], cache, 2)
    target.prefill(ids[5:9], cache, 0)
    tried = [([2, 0], layouts), ([0], layouts[1:])]
    try:
        special = make(cache)
        worst = float(np.max([_deviation(target, cache, special, *each) for each in tried]))  # NaN if any is NaN
    except (Unsupported, RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        return message_line(error)
    limit = _TOLERANCE.get(target.dtype, LOW_PRECISION_TOLERANCE)
    return None if worst <= limit else f"they differ from packed ones by {worst:.2g} standard deviations"


def _deviation(
    target: LanguageModel, cache: KVCache, special: SpecialPasses, slots: Sequence[int], layouts: Sequence[TreeLayout]
) -> float:
    """The deviation of a pass's logits from a packed pass's logits, in standard deviations of the packed logits."""
    expected = target.forward(cache, slots, layouts, [len(layout) for layout in layouts]).logits
    special.prepare(slots, layouts)
    found = special.forward(slots, layouts, [len(layout) for layout in layouts]).logits
    return deviation(found, expected)
