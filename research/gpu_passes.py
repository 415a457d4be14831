"""Compares kinds of passes on one device: their times, kernels, bits and texts. ``research/gpu.py`` runs it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from suffolk.benchmarks.table import format_table
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.loop.request import Request
from suffolk.serving.engine.loop.step_loop import StepLoop
from suffolk.serving.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.engine.model.kv_cache import KVCache
from suffolk.serving.engine.model.passes import Passes
from suffolk.serving.engine.model.target import Target
from suffolk.serving.engine.model.tree_layout import TreeLayout, chain, lay_out
from suffolk.serving.engine.sampling.settings import SamplingSettings

Ids = npt.NDArray[np.int64]
Point = tuple[int, int, int]
"""Requests, rows of each, and cached tokens of each."""
POINTS: tuple[Point, ...] = (
    *((1, rows, context) for context in (256, 1000, 3000) for rows in (1, 2, 4, 8, 16, 32, 64)),
    *((requests, 1, 1000) for requests in (8, 32, 64)),
    *((requests, 4, 1000) for requests in (8, 32, 64)),
)
_WARM_UPS, _TIMED = 4, 30
_TEXT = 48
"""Tokens whose logits are compared bit for bit."""
_CONTEXT = 200
_NODES = 8
"""Nodes of a draft that texts are decoded with."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What one kind of passes gives. Times in milliseconds.

    Attributes:
        kind: the kind in use, which is another one if that asked for fails.
        start_seconds: making the passes, captures at the start included.
        milliseconds: the median time of a pass at each point, with loading its numbers.
        kernels: kernels of a pass of one row, and their busy microseconds; None without CUDA.
        bits: rows whose logits equal those of passes over single rows, of all compared, by layout.
        texts: drafted texts that equal plain ones, of all compared.
    """

    kind: str
    start_seconds: float
    milliseconds: dict[Point, float]
    kernels: tuple[int, float] | None
    bits: dict[str, tuple[int, int]]
    texts: tuple[int, int]

    def to_dict(self) -> dict[str, Any]:
        points = [
            {"requests": requests, "rows": rows, "context": context, "milliseconds": found}
            for (requests, rows, context), found in self.milliseconds.items()
        ]
        kernels = None if self.kernels is None else {"count": self.kernels[0], "busy_microseconds": self.kernels[1]}
        return {
            "kind": self.kind,
            "start_seconds": self.start_seconds,
            "points": points,
            "kernels": kernels,
            "equal_bits": self.bits,
            "equal_texts": self.texts,
        }


def compare(
    target: Target, kind: str, prompts: Sequence[Ids], new_tokens: int, points: Sequence[Point] = POINTS
) -> Comparison:
    """Measure passes of ``kind``. Each of ``prompts`` is decoded twice: plain, and with drafts of right and wrong tokens."""
    slots = max(requests for requests, _, _ in points)
    capacity = max(rows + context for _, rows, context in points)
    cache = target.new_cache(slots, max(capacity, _CONTEXT + 4 * _TEXT))
    begin = time.perf_counter()
    passes = Passes(target, cache, kind, prepare_all=True)
    target.synchronize()
    seconds = time.perf_counter() - begin
    times = {point: _time(target, passes, cache, point) for point in points}
    kernels = _count_kernels(target, passes, cache)
    bits = compare_bits(target, passes, cache)
    same = _count_equal_texts(target, kind, prompts, new_tokens)
    return Comparison(passes.kind, seconds, times, kernels, bits, (same, len(prompts)))


def show(found: Sequence[Comparison], layers: int) -> None:
    """Print a table of times, and one of the other figures."""
    rows = [[*point, *(f"{each.milliseconds[point]:.2f}" for each in found)] for point in found[0].milliseconds]
    print(format_table(["requests", "rows", "context", *(f"{each.kind}, ms" for each in found)], rows), flush=True)
    lines = []
    for each in found:
        count, busy = each.kernels or (0, 0.0)
        shares = [f"{equal} of {every}" for equal, every in (*each.bits.values(), each.texts)]
        lines.append([each.kind, f"{each.start_seconds:.1f}", f"{count / layers:.1f}", f"{busy:.0f}", *shares])
    names = ["passes", "start, s", "kernels a layer", "busy, µs", *(f"equal bits: {name}" for name in found[0].bits)]
    print(format_table([*names, "equal texts"], lines), flush=True)


def _time(target: Target, passes: Passes, cache: KVCache, point: Point) -> float:
    requests, rows, context = point
    cache.lengths[:] = context
    slots, layouts, wanted = range(requests), [chain(_tokens(target, rows))] * requests, [rows] * requests
    passes.prepare(slots, layouts, wanted)
    seen = []
    for _ in range(_WARM_UPS + _TIMED):
        begin = time.perf_counter()
        passes.forward(slots, layouts, wanted)
        target.synchronize()
        seen.append(1000 * (time.perf_counter() - begin))
    return median(seen[_WARM_UPS:])


def _count_kernels(target: Target, passes: Passes, cache: KVCache) -> tuple[int, float] | None:
    if target.device.type != "cuda":
        return None
    from torch.profiler import ProfilerActivity, profile

    cache.lengths[:] = _CONTEXT
    layouts = [chain(_tokens(target, 1))]
    passes.prepare([0], layouts, [1])
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        passes.forward([0], layouts, [1])
        target.synchronize()
    events = [event for event in profiled.events() if event.device_type.name == "CUDA"]
    kernels = [event for event in events if not event.name.startswith(("Memcpy", "Memset"))]
    return len(kernels), float(sum(event.device_time for event in kernels))


def compare_bits(target: Target, passes: Passes, cache: KVCache) -> dict[str, tuple[int, int]]:
    """Of the rows of chains and trees, how many have the bits of passes over single rows, and how many there are."""
    text = _tokens(target, _TEXT)
    expected = _read(target, passes, cache, [[chain(text[at : at + 1])] for at in range(_TEXT)])
    found = {f"chains of {size}": _chunks(text, size) for size in (8, 16)} | {"trees": _trees(target, text, 8)}
    bits = {}
    for name, layouts in found.items():
        logits = _read(target, passes, cache, layouts)
        bits[name] = int((logits == expected[: len(logits)]).all(-1).sum()), len(logits)
    return bits


def _chunks(text: Ids, size: int) -> list[list[TreeLayout]]:
    return [[chain(text[at : at + size])] for at in range(0, len(text), size)]


def _trees(target: Target, text: Ids, size: int) -> list[list[TreeLayout]]:
    """Trees whose every second row is of the text; the others are wrong siblings, which come first."""
    layouts = []
    for at in range(0, len(text), size):
        part = text[at : at + size]
        layouts.append([lay_out(int(part[0]), _comb(part[1:], (part[1:] + 1) % target.vocab_size))])
    return layouts


def _comb(right: Ids, wrong: Ids) -> DraftTree:
    """A path of ``right`` tokens, each after a sibling, its token of ``wrong``."""
    size = 2 * len(right)
    parents = np.repeat(np.arange(-1, size - 2, 2), 2)[:size].astype(np.int32)
    tokens = np.stack([wrong, right], 1).ravel().astype(np.int32)
    return DraftTree(tokens, parents, np.ones(size, np.float32), np.ones(size, np.uint32))


def _read(target: Target, passes: Passes, cache: KVCache, texts: Sequence[Sequence[TreeLayout]]) -> torch.Tensor:
    """The logits after each token of a text, read by passes over ``texts`` in turn. The text's rows are kept."""
    cache.clear(0)
    target.prefill(_tokens(target, _CONTEXT), cache)
    logits = []
    for layouts in texts:
        size = len(layouts[0])
        rows = np.arange(0, size, 1 if layouts[0].visible is None else 2)
        passes.prepare([0], layouts, [size])
        logits.append(passes.forward([0], layouts, [size]).logits[torch.from_numpy(rows).to(target.device)].clone())
        cache.keep([0], [rows])
    return torch.cat(logits)


class _Recalled:
    """Drafts the continuations of known texts, each token after a wrong sibling, four deep."""

    name = "recalled"

    def __init__(self, vocab_size: int) -> None:
        self.texts: dict[int, Ids] = {}
        self._vocab_size = vocab_size

    def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
        return [self._draft(self.texts[request.request_id], len(request.tokens)) for request in requests]

    def _draft(self, text: Ids, length: int) -> DraftTree:
        right = text[length : length + _NODES // 2]
        return _comb(right, (right + 1) % self._vocab_size) if len(right) else DraftTree.empty()

    def observe(self, request_id: int, tokens: npt.NDArray[np.int32]) -> None:
        pass

    def release(self, request_id: int) -> None:
        pass

    def stats(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


def _count_equal_texts(target: Target, kind: str, prompts: Sequence[Ids], new_tokens: int) -> int:
    """Of ``prompts``, how many give the same text plain and with drafts."""
    if not prompts:
        return 0
    drafter, settings = _Recalled(target.vocab_size), SamplingSettings(max_new_tokens=new_tokens)
    capacity = max(map(len, prompts)) + new_tokens + 2 * _NODES
    loop = StepLoop(target, {drafter.name: drafter}, VerifyAllPlanner(), 1, capacity, kind)
    same = 0
    for number, prompt in enumerate(prompts):
        plain = Request(2 * number, target, prompt.tolist(), settings, "", _NODES)
        _finish(loop, plain)
        drafter.texts[2 * number + 1] = np.concatenate([prompt, np.asarray(plain.generated, np.int64)])
        drafted = Request(2 * number + 1, target, prompt.tolist(), settings, drafter.name, _NODES)
        _finish(loop, drafted)
        same += plain.generated == drafted.generated
    return same


def _finish(loop: StepLoop, request: Request) -> None:
    loop.join(request)
    while loop.running:
        loop.step()


def _tokens(target: Target, count: int) -> Ids:
    return (np.arange(count) * 7919 + 17) % target.vocab_size
