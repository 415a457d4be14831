"""Times passes of a target, at a dozen points before decoding or over a whole grid for ``suffolk profile``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from suffolk.serving.decoding.engine.costs.cost_model import SIZES, CostModel, Point, Sample
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.passes import Passes
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import chain

QUICK_SECONDS = 2.5
"""How long a process measures before it decodes."""
_CONTEXT = 128
_LONG_CONTEXT = 1024
_MAX_QUICK_SLOTS = 16
_PATIENCE = 4
"""Factor by which ``fastest`` may exceed its budget to time each point twice. A single pass is unreliable on a busy machine."""
_NEEDED = 3
_WARM_UPS = 6


def measure(target: Target, slots: int = 1, passes: str = "auto") -> CostModel:
    """Measure up to a dozen points with one request, or with ``slots`` (at most 16), each at least twice, for ``QUICK_SECONDS``.

    If two rounds take more than four times as long, only the first points are measured, at least three.
    """
    limit = target.context_length or _LONG_CONTEXT + SIZES[-1]
    sizes = [size for size in SIZES if size < limit]
    context = max(1, min(_CONTEXT, limit - sizes[-1]))
    points = [(sizes[0], 1, context), *((size, 1, context) for size in (*sizes[3:4], *sizes[1:3], *sizes[4:]))]
    if (batch := min(slots, _MAX_QUICK_SLOTS)) > 1:
        points.insert(2, (1, batch, context))
    if (long := min(_LONG_CONTEXT, limit - sizes[-1])) >= 2 * context:
        points[3:3] = [(1, 1, long), (sizes[len(sizes) // 2], 1, long)]
    return CostModel.fit(time_points(target, points, budget=QUICK_SECONDS, passes=passes))


def time_points(
    target: Target,
    points: Sequence[Point],
    rounds: int | None = None,
    budget: float = float("inf"),
    report: Callable[[int], None] = lambda passes: None,
    passes: str = "auto",
) -> list[Sample]:
    """The ``fastest`` passes of ``target``.

    Args:
        passes: kind of passes (``passes.py``). Other arguments: as for ``fastest``.

    Raises:
        ResourceExhausted: no memory for the cache.
    """
    cache = target.new_cache(1, max(batch * (size + context) for size, batch, context in points))
    fill(cache)
    return fastest(partial(_time_pass, Passes(target, cache, passes), cache), points, rounds, budget, report)


def fastest(
    time_pass: Callable[[Point], float],
    points: Sequence[Point],
    rounds: int | None = None,
    budget: float = float("inf"),
    report: Callable[[int], None] = lambda passes: None,
) -> list[Sample]:
    """The fastest pass at each of ``points``.

    Passes warm up until they get no faster. The fastest pass is taken, because other load only adds time. Points are timed in
    rounds, because a busy moment then affects all points alike.

    Args:
        time_pass: makes a pass at a point, and returns its seconds.
        rounds: passes at each point; None for as many as ``budget`` allows.
        budget: seconds. If two rounds take more than four times as long as this, only the first points are timed, at least three.
        report: called after each pass with the number of passes so far.
    """
    best: dict[Point, float] = {}
    last = np.inf
    for _ in range(_WARM_UPS):
        before, last = last, time_pass(points[0])
        if last > 0.9 * before:
            break
    begin, done = time.perf_counter(), 0
    while rounds is None or done < rounds * len(points):
        spent = time.perf_counter() - begin
        if spent > budget and done >= 2 * len(points):
            break
        if spent > _PATIENCE * budget and len(best) >= min(_NEEDED, len(points)):
            break
        point = points[done % len(points)]
        best[point] = min(best.get(point, np.inf), time_pass(point))
        done += 1
        report(done)
    return [Sample(size * batch, batch, context, best[size, batch, context]) for size, batch, context in best]


def _time_pass(passes: Passes, cache: KVCache, point: Point) -> float:
    size, batch, context = point
    cache.slots, cache.capacity = batch, size + context  # all points use one slab, divided in different ways
    cache.lengths = np.full(batch, context)
    layouts = [chain(np.zeros(size, np.int64))] * batch
    passes.prepare(range(batch), layouts, [size] * batch)
    begin = time.perf_counter()
    passes.forward(range(batch), layouts, [size] * batch).logits.argmax(-1).cpu()
    return time.perf_counter() - begin


def fill(cache: KVCache) -> None:
    """Set random keys and values, because uninitialised memory may hold denormal numbers, which are slow."""
    for slab in cache.slabs.values():
        slab.normal_()
