"""Measures kinds of passes on one device: their times, kernels, bits and texts.

``research.gpu`` runs this file also with the Suffolk of older checkouts. So it imports nothing of this folder, and only parts
of the engine that change little. It reads a JSON object of options from the command line, and prints one as its last line.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from suffolk.benchmarks.prompts import encode_prompt, load_prompts
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.passes import Passes
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout, chain, lay_out
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

Ids = npt.NDArray[np.int64]
Point = tuple[int, int, int]
"""Requests that decode, rows of each, and cached tokens of each."""
Mixed = tuple[int, int]
"""Requests that decode, and tokens of the prompt that the same pass reads."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What is measured. ``timed``: passes at each point, after a few that are not timed."""

    points: tuple[Point, ...]
    mixed: tuple[Mixed, ...]
    timed: int = 30
    new_tokens: int = 128


FULL = Scope(
    points=(
        *((1, rows, context) for context in (256, 1000, 3000) for rows in (1, 2, 4, 8, 16, 32, 64)),
        *((requests, 1, 1000) for requests in (8, 16, 32, 64)),
        *((requests, 4, 1000) for requests in (8, 16, 32, 64)),
        *((requests, 8, 1000) for requests in (8, 16)),
    ),
    mixed=tuple((requests, prompt) for requests in (0, 8, 32) for prompt in (16, 64, 256, 2048)),
)
QUICK = Scope(points=((1, 1, 64), (1, 16, 64), (4, 1, 64)), mixed=((0, 16), (4, 16)), timed=3, new_tokens=16)
"""Tries the command, on a CPU too."""
_WARM_UPS = 4
_TEXT = 48
"""Tokens whose logits are compared bit for bit."""
_CONTEXT = 200
_MIXED_CONTEXT = 1000
_SAMPLED = ((0.8, 20, 0.95), (1.0,))
"""Temperature, top-k and top-p of sampled texts."""
_NODES = 8
"""Nodes of a draft that texts are decoded with."""


@dataclass(frozen=True, slots=True)
class Times:
    """Median milliseconds of a pass: ``whole``, and ``host`` until the host can go on. ``prepare``: of making it at its first
    use."""

    whole: float
    host: float
    prepare: float


def compare(target: Target, kind: str, prompts: Sequence[Ids], scope: Scope) -> dict[str, Any]:
    """Measure passes of ``kind``. Each of ``prompts`` is decoded twice: plain, and with drafts of right and wrong tokens.

    Returns:
        kind: the kind in use. It differs from the requested kind if that failed.
        start_seconds: making the passes, captures at the start included.
        first_use_milliseconds: the longest preparation of a pass, at the first use of its shape.
        points, mixed: each point with its milliseconds, in all and until the host can go on.
        kernels: kernels of a pass of one row, and their busy microseconds; None without CUDA.
        equal_bits: rows with the same logits as in passes over single rows, of all compared, by layout.
        equal_texts, equal_samples: drafted texts that equal plain ones, of all compared, whether device or host ends steps.
    """
    slots = 1 + max(requests for requests, *_ in (*scope.points, *scope.mixed))
    room = [rows + context for _, rows, context in scope.points]
    room += [_MIXED_CONTEXT + prompt for _, prompt in scope.mixed]
    cache = target.new_cache(slots, max(*room, _CONTEXT + 4 * _TEXT))
    passes, seconds = _make_passes(target, cache, kind)
    times, mixed = {}, {}
    for point in scope.points:
        requests, rows, context = point
        cache.lengths[:] = context
        times[point] = _time(target, passes, [chain(_tokens(target, rows))] * requests, [rows] * requests, scope.timed)
    for pair in scope.mixed:
        requests, prompt = pair
        cache.lengths[:] = _MIXED_CONTEXT
        layouts = [chain(_tokens(target, 1))] * requests + [chain(_tokens(target, prompt))]
        mixed[pair] = _time(target, passes, layouts, [1] * len(layouts), scope.timed)
    return {
        "kind": _kind_of(passes, kind),
        "start_seconds": seconds,
        "first_use_milliseconds": max(each.prepare for each in (*times.values(), *mixed.values())),
        "points": [[*point, each.whole, each.host] for point, each in times.items()],
        "mixed": [[*pair, each.whole, each.host] for pair, each in mixed.items()],
        "kernels": _count_kernels(target, passes, cache),
        "equal_bits": compare_bits(target, passes, cache),
        "equal_texts": _count_equal_texts(target, kind, prompts, scope.new_tokens, [()]),
        "equal_samples": _count_equal_texts(target, kind, prompts, scope.new_tokens, _SAMPLED),
    }


def _make_passes(target: Target, cache: KVCache, kind: str) -> tuple[Passes, float]:
    """The passes, and the seconds that making them takes. Older ones capture at first use alone."""
    begin = time.perf_counter()
    options: dict[str, Any] = {"prepare_all": True} if "prepare_all" in inspect.signature(Passes).parameters else {}
    passes = Passes(target, cache, kind, **options)
    target.synchronize()
    return passes, time.perf_counter() - begin


def _kind_of(passes: Passes, asked: str) -> str:
    return str(getattr(passes, "kind", asked))


def _time(target: Target, passes: Passes, layouts: Sequence[TreeLayout], wanted: Sequence[int], timed: int) -> Times:
    slots = range(len(layouts))
    begin = time.perf_counter()
    passes.prepare(slots, layouts, wanted)
    prepare = 1000 * (time.perf_counter() - begin)
    whole, host = [], []
    for _ in range(_WARM_UPS + timed):
        begin = time.perf_counter()
        passes.forward(slots, layouts, wanted)
        host.append(1000 * (time.perf_counter() - begin))
        target.synchronize()
        whole.append(1000 * (time.perf_counter() - begin))
    return Times(median(whole[_WARM_UPS:]), median(host[_WARM_UPS:]), prepare)


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
    """Trees in which every second row is of the text. The other rows are wrong siblings, and come first."""
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

    def observe(self, generated: Generated) -> None:
        pass

    def release(self, request_id: int) -> None:
        pass

    def stats(self) -> dict[str, float]:
        return {}

    def close(self) -> None:
        pass


def _count_equal_texts(
    target: Target, kind: str, prompts: Sequence[Ids], new_tokens: int, samplings: Sequence[tuple[Any, ...]]
) -> tuple[int, int]:
    """Of all ``prompts``, how many texts are the same plain and with drafts, and their number."""
    if not prompts:
        return 0, 0
    drafter, same = _Recalled(target.vocab_size), 0
    capacity = max(map(len, prompts)) + new_tokens + 2 * _NODES
    loop = StepLoop(target, {drafter.name: drafter}, VerifyAllPlanner(), 1, capacity, kind)
    for settings in [SamplingSettings(new_tokens, *each) for each in samplings]:
        for prompt in prompts:
            plain = _decode(loop, Request(0, target, prompt.tolist(), settings, "", _NODES))
            drafter.texts[0] = np.concatenate([prompt, np.asarray(plain, np.int64)])
            texts = []
            for on_host in (False, True)[: 1 + getattr(loop.passes, "has_steps", False)]:
                drafted = Request(0, target, prompt.tolist(), settings, drafter.name, _NODES)
                if on_host:
                    drafted.row_settings = None
                texts.append(_decode(loop, drafted))
            same += all(text == plain for text in texts)
    return same, len(samplings) * len(prompts)


def _decode(loop: StepLoop, request: Request) -> list[int]:
    loop.join(request)
    while loop.running:
        loop.step()
    return request.generated


def _tokens(target: Target, count: int) -> Ids:
    return (np.arange(count) * 7919 + 17) % target.vocab_size


def main(options: dict[str, Any]) -> dict[str, Any]:
    """What each of the ``kinds`` gives, or its ``problem``; with ``start_only`` the seconds of its start."""
    target = Target.load(options["model"], options["dtype"], options["device"])
    return {"layers": target.layers, "passes": list(_measure(target, options))}


def _measure(target: Target, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    scope = QUICK if options["quick"] else FULL
    loaded = load_prompts([Path(path) for path in options["prompts"]], "chat", options["limit"], 0)
    prompts = [np.asarray(encode_prompt(each, target.tokenizer, options["model"]), np.int64) for each in loaded]
    for kind in options["kinds"]:
        try:
            if options["start_only"]:
                passes, seconds = _make_passes(target, target.new_cache(1, _CONTEXT), kind)
                yield {"asked": kind, "kind": _kind_of(passes, kind), "warm_start_seconds": seconds}
            else:
                yield {"asked": kind, **compare(target, kind, prompts, scope)}
        except SuffolkError as error:
            yield {"asked": kind, "problem": str(error)}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
