"""The kinds of forward pass: packed (any shape), compiled (one graph for CPUs), captured (static shapes, CUDA graphs)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import numpy as np
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.serving.engine.model.compiled_pass import CompiledPass
from suffolk.serving.engine.model.grid_attention import Bucket
from suffolk.serving.engine.model.kv_cache import KVCache
from suffolk.serving.engine.model.language_model import LanguageModel
from suffolk.serving.engine.model.pass_result import PassResult
from suffolk.serving.engine.model.probe import LOW_PRECISION_TOLERANCE
from suffolk.serving.engine.model.static_pass import GraphMemory, StaticPass
from suffolk.serving.engine.model.tree_layout import TreeLayout, chain, lay_out
from suffolk.serving.engine.user_code_errors import message_line

log = logging.getLogger(__name__)

KINDS = ("auto", "packed", "captured", "compiled")
MOST_ROWS = 256
"""Most rows of a captured or compiled pass.

Larger passes are packed, because their work hides kernel launches and the gain of compiling.
"""
_LEAST_KEYS = 256
_MOST_PASSES = 64
"""Most static passes that are kept. A further one replaces the least recently used."""
_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-2}  # many models normalise in fp32, whatever their dtype


class Passes:
    """The forward passes over one cache. Not thread-safe.

    The kind applies to passes of up to ``MOST_ROWS`` rows that return the logits of every row. Other passes, such as
    those over prompts, are packed.

    - ``packed``: any shape.
    - ``captured``: static shapes (``static_pass.py``), captured as graphs on CUDA and run uncaptured elsewhere. Not measured.
    - ``compiled``: one compiled graph for all sizes, on CPUs (``compiled_pass.py``).
    - ``auto``: captured on CUDA, packed elsewhere. A model that cannot be captured is packed, with a warning.
    """

    def __init__(self, target: LanguageModel, cache: KVCache, kind: str = "auto", layers: Sequence[int] = ()) -> None:
        """Checks small passes of the kind against packed ones. Compiling takes a minute or more.

        ``layers``: layers whose hidden states all passes return.

        Raises:
            InvalidArgument: an unknown kind.
            Unsupported: ``captured`` or ``compiled``, and the model's passes of this kind fail or differ.
        """
        if kind not in KINDS:
            raise InvalidArgument(f"passes are {kind!r}; they must be one of {', '.join(KINDS)}")
        require_states(target, kind, layers)
        self._target, self._cache, self._kind, self._layers = target, cache, kind, tuple(layers)
        self._special: _SpecialPasses | None = None
        if kind != "packed" and (kind != "auto" or target.device.type == "cuda"):
            problem = _problem(target, self._make)
            if problem is None:
                self._special = self._make(cache)
            else:
                self._degrade(problem)

    def _make(self, cache: KVCache) -> _SpecialPasses:
        if self._kind == "compiled":
            return _CompiledPasses(self._target, cache)
        return _StaticPasses(self._target, cache, self._layers)

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> None:
        """Capture the graph that ``forward`` with the same arguments needs, so that a clock does not measure it.

        Raises:
            Unsupported: the kind is ``captured``, and the pass cannot be captured.
        """
        if self._special is None or not _fits(layouts, wanted):
            return
        try:
            self._special.prepare(slots, layouts)
        except RuntimeError as error:  # from CUDA, also if memory for the graph is lacking
            self._degrade(message_line(error))

    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> PassResult:
        """As ``LanguageModel.forward``. The next pass may overwrite the result."""
        if self._special is not None and _fits(layouts, wanted):
            return self._special.forward(slots, layouts)
        return self._target.forward(self._cache, slots, layouts, wanted, self._layers)

    def _degrade(self, problem: str) -> None:
        if self._kind != "auto":
            raise Unsupported(
                f"model {self._target.name}: its passes cannot be {self._kind} ({problem}); use packed passes"
            )
        log.warning("model %s: its passes cannot be captured (%s); using packed ones", self._target.name, problem)
        self._special = None


def require_states(target: LanguageModel, kind: str, layers: Sequence[int]) -> None:
    """Raise Unsupported if ``layers`` are wanted and passes of that ``kind`` return no hidden states."""
    if kind == "compiled" and layers:
        raise Unsupported(
            f"model {target.name}: its passes cannot be compiled (compiled passes give no hidden states, which a drafter "
            "needs); use packed passes"
        )


def bucket_for(cache: KVCache, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> Bucket:
    """The smallest bucket for these rows. Its sizes are powers of two, capped by those of the cache."""
    sizes = np.asarray([len(layout) for layout in layouts])
    keys = int((cache.lengths[list(slots)] + sizes).max())
    return Bucket(
        rows=_power(int(sizes.sum())),
        slots=min(_power(max(slots) + 1), cache.slots),
        cells=min(_power(int(sizes.max())), cache.capacity),
        keys=min(max(_power(keys), _LEAST_KEYS), cache.capacity),
    )


class _CompiledPasses:
    """The compiled pass over one cache."""

    def __init__(self, target: LanguageModel, cache: KVCache) -> None:
        self._cache, self._pass = cache, CompiledPass.of(target)

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> None:
        """Nothing to prepare: the first pass compiles."""

    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> PassResult:
        return self._pass.forward(self._cache, slots, layouts)


class _StaticPasses:
    """The static passes over one cache, by bucket. On CUDA their graphs share memory and one array of logits."""

    def __init__(self, target: LanguageModel, cache: KVCache, layers: tuple[int, ...]) -> None:
        cache.finite = True
        self._target, self._cache, self._layers = target, cache, layers
        self._passes: dict[tuple[int, int, Bucket], StaticPass] = {}
        self._memory = GraphMemory.on(target.device, MOST_ROWS) if target.device.type == "cuda" else None

    def prepare(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> None:
        found = self._find(slots, layouts)
        if self._memory is not None and not found.is_captured:
            found.load(slots, layouts)
            found.capture(self._memory)

    def forward(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> PassResult:
        found = self._find(slots, layouts)
        rows = found.load(slots, layouts)
        return found.run().head(rows)

    def _find(self, slots: Sequence[int], layouts: Sequence[TreeLayout]) -> StaticPass:
        cache = self._cache
        bucket = bucket_for(cache, slots, layouts)
        key = (cache.slots, cache.capacity, bucket)
        found = self._passes.pop(key, None) or StaticPass(self._target, cache, bucket, self._layers)
        self._passes[key] = found  # ordered by last use
        if len(self._passes) > _MOST_PASSES:
            del self._passes[next(iter(self._passes))]
        return found


_SpecialPasses = _CompiledPasses | _StaticPasses


def _fits(layouts: Sequence[TreeLayout], wanted: Sequence[int]) -> bool:
    sizes = [len(layout) for layout in layouts]
    return sizes == list(wanted) and sum(sizes) <= MOST_ROWS


def _power(number: int) -> int:
    """The smallest power of two that is at least ``number``."""
    return 1 << (number - 1).bit_length()


def _problem(target: LanguageModel, make: Callable[[KVCache], _SpecialPasses]) -> str | None:
    """The reason why captured or compiled passes of the model fail; None if they work.

    Checks a pass over two requests with an unused slot between them, one with a small tree, and a pass over one row.
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
        worst = float(np.max([_deviation(target, cache, special, *each) for each in tried]))  # NaN if one is
    except (Unsupported, RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        return message_line(error)
    limit = _TOLERANCE.get(target.dtype, LOW_PRECISION_TOLERANCE)
    return None if worst <= limit else f"they differ from packed ones by {worst:.2g} standard deviations"


def _deviation(
    target: LanguageModel, cache: KVCache, special: _SpecialPasses, slots: Sequence[int], layouts: Sequence[TreeLayout]
) -> float:
    """The deviation of a pass's logits from those of a packed pass, in standard deviations of the packed logits."""
    expected = target.forward(cache, slots, layouts, [len(layout) for layout in layouts]).logits
    special.prepare(slots, layouts)
    found = special.forward(slots, layouts).logits
    deviation = (found - expected).double().square().mean(-1).sqrt().max()
    return float(deviation / expected.double().std().clamp(min=1e-9))
