"""Measures the processor time of the step loop beside the model's passes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np
import torch

from research.host_time.instant_model import (
    VOCAB,
    HostClock,
    Ids,
    InstantPasses,
    WordTexts,
    replaced_clock,
    tiny_target,
)
from research.host_time.options import HostOptions
from suffolk.benchmarks.plot import Panel
from suffolk.build_index.progress import tracked
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.text_table import Table
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import read_costs
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.passes import Passes
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

PARTS = ("scheduling", "loading", "drafting", "learning", "planning", "verification", "bookkeeping", "streaming")


class StepParts:
    """Adds the time of functions to ``PARTS``. The time of a watched function inside another counts for its own part alone.

    Attributes:
        seconds: by part.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._open: list[str] = []
        self._last = 0.0
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def take(self) -> dict[str, float]:
        """The seconds of each part since the last call."""
        seconds, self.seconds = self.seconds, dict.fromkeys(PARTS, 0.0)
        return seconds

    def watch_loop(self, loop: StepLoop) -> None:
        """Divide the steps of ``loop``."""
        self._watch(loop, "bookkeeping", "step")
        self._watch(loop, "verification", "_verify")
        self._watch(loop.passes, "loading", "prepare", "forward", "step")
        self._watch(loop._batch, "scheduling", "take")
        self._watch(loop._pool, "drafting", "draft", "permitted", "prefetch")
        self._watch(loop._pool, "learning", "observe")
        if loop._planner is not None:
            self._watch(loop._planner, "planning", "may_draft", "draft_budget", "size_trees", "record")

    def watch_request(self, request: Request) -> None:
        """Divide the steps of ``request``."""
        self._watch(request._text, "streaming", "push", "finish")

    def _watch(self, owner: Any, part: str, *names: str) -> None:
        for name in names:
            setattr(owner, name, self._watched(getattr(owner, name), part))

    def _watched(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*args: Any, **more: Any) -> Any:
            self._lap()
            self._open.append(part)
            try:
                return function(*args, **more)
            finally:
                self._lap()
                self._open.pop()

        return timed

    def _lap(self) -> None:
        now = self._now()
        if self._open:
            self.seconds[self._open[-1]] += now - self._last
        self._last = now


PLAIN, HYBRID = "plain", "hybrid"
SLOW_GPU = CostModel((1, 2, 4, 8, 16, 32, 64), (0.0705, 0.0721, 0.073, 0.0745, 0.0784, 0.08, 0.0827), 0.0, 8.74e-06)
"""Ten times the costs of a model of 7 billion parameters on an NVIDIA H200, so that drafts pay at any number of requests."""
_MOST_NODES = 64
PACKAGES = ("numpy", "torch", "transformers", "matplotlib")
HEADERS = ("requests, drafter", "steps", "ms", "p90", "tokens a step", *PARTS)
NOTES = (
    "ms: processor time of a step beside the model's pass, median and p90 of steps in which all requests decode; "
    "tokens a step: of one request",
    "parts: medians of a second run that watches them, which takes longer. scheduling: choose and lay out rows; loading: "
    "write the rows of a captured pass; drafting: call the drafters; learning: let them learn; planning: size the trees, and "
    "book costs and gains; verification: read what the device accepted; bookkeeping: counts, results, cache; streaming: text",
    "the texts are words of Python's standard library; half of its modules are the datastore. A pass is not computed. The "
    "planner gets its time from a cost table, so it drafts as on that device",
)


@dataclass(frozen=True, slots=True)
class _Steps:
    """Steps in which all requests decoded: seconds of the host in each, by part if these were watched, and tokens of all."""

    seconds: list[float]
    parts: list[dict[str, float]]
    tokens: int


def measure_host(options: HostOptions) -> dict[str, Any]:
    """Measure each drafter at each number of requests.

    Every case runs twice: once for the whole time, and once for its parts, because watching them takes time too.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that wait for work take processor time
    try:
        return {"cases": _cases(options, SLOW_GPU if options.costs is None else read_costs(options.costs)[0])}
    finally:
        torch.set_num_threads(threads)


def _cases(options: HostOptions, costs: CostModel) -> list[dict[str, Any]]:
    texts = WordTexts.of_standard_library()
    stored, held_out = texts.documents[::2], texts.documents[1::2]
    cases = [(drafter, requests) for drafter in options.drafters for requests in options.requests]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = stack.enter_context(texts.write_store(folder / "store", stored))
        target = tiny_target(VOCAB, texts.tokenizer)
        bench = _Bench(options, target, costs, store)
        rows = []
        for drafter, requests in tracked(iter(cases), len(cases), "cases"):
            size = options.prompt + options.tokens + 1
            chosen = texts.excerpts(held_out, requests * options.rounds, size, options.seed)
            rows.append(bench.measure(drafter, requests, chosen))
    return rows


@dataclass(frozen=True, slots=True)
class _Bench:
    options: HostOptions
    target: Target
    costs: CostModel
    store: Datastore

    def measure(self, drafter: str, requests: int, texts: Sequence[Ids]) -> dict[str, Any]:
        """The result of one case. ``texts``: the texts of all rounds."""
        whole, divided = (self._run(drafter, requests, texts, is_watched=each) for each in (False, True))
        parts = {name: 1e3 * median(each[name] for each in divided.parts) for name in divided.parts[0]}
        return {
            "drafter": drafter,
            "requests": requests,
            "steps": len(whole.seconds),
            "ms": 1e3 * median(whole.seconds),
            "ms_p90": 1e3 * float(np.quantile(whole.seconds, 0.9)),
            "tokens_per_step": whole.tokens / len(whole.seconds) / requests,
            "parts_ms": parts,
        }

    def _run(self, drafter: str, requests: int, texts: Sequence[Ids], is_watched: bool) -> _Steps:
        clock, found = HostClock(), _Steps([], [], 0)
        parts = StepParts(clock.worked) if is_watched else None
        source = None if drafter == PLAIN else make_drafter(drafter, VOCAB, [self.store])
        capacity = self.options.prompt + self.options.tokens + _MOST_NODES + 1
        tokens = 0
        with replaced_clock(clock.now):
            loop = StepLoop(
                self.target, None if source is None else {drafter: source}, self.costs, requests, capacity, "packed"
            )
            passes = InstantPasses(self.target, loop.cache, self.costs, clock, requests * (1 + _MOST_NODES))
            loop.passes = cast(Passes, passes)
            if parts is not None:
                parts.watch_loop(loop)
            numbers = count(1)
            for begin in range(0, len(texts), requests):
                for text in texts[begin : begin + requests]:
                    request = self._request(next(numbers), text, "" if source is None else drafter)
                    if parts is not None:
                        parts.watch_request(request)
                    loop.join(request)
                    passes.texts[request.slot, : len(text)] = text
                    loop.cache.lengths[request.slot] = self.options.prompt - 1  # its pass would be instant too
                for seconds, new in _full_steps(loop, clock, parts):
                    found.seconds.append(seconds)
                    tokens += new
                    if parts is not None:
                        found.parts.append(parts.take())
        if source is not None:
            source.close()
        return _Steps(found.seconds, found.parts, tokens)

    def _request(self, number: int, text: Ids, drafter: str) -> Request:
        options = self.options
        settings = SamplingSettings(options.tokens, temperature=options.temperature, seed=options.seed)
        return Request(number, self.target, text[: options.prompt].tolist(), settings, drafter, _MOST_NODES)


def _full_steps(loop: StepLoop, clock: HostClock, parts: StepParts | None) -> Iterator[tuple[float, int]]:
    """Run all requests of ``loop`` to their ends: the host's seconds, and the tokens, of each step in which all decode."""
    requests = len(loop.running)
    while loop.running:
        decoding = sum(each.length > each.stats.prompt_tokens for each in loop.running)
        begin = clock.worked()
        results = loop.step()
        seconds = clock.worked() - begin
        for _, step in results:
            if isinstance(step, SuffolkError):
                raise step
        if decoding == requests:
            yield seconds, sum(len(step.tokens) for _, step in results if not isinstance(step, SuffolkError))
        elif parts is not None:
            parts.take()


def tables(results: dict[str, Any]) -> list[str | Table]:
    """The table."""
    rows = [
        [
            _name(case),
            case["steps"],
            case["ms"],
            case["ms_p90"],
            case["tokens_per_step"],
            *(case["parts_ms"][part] for part in PARTS),
        ]
        for case in results["cases"]
    ]
    return [Table(HEADERS, rows)]


def plots(results: dict[str, Any]) -> list[Panel]:
    """Plot the time of a step, whole and by part."""
    cases = results["cases"]
    names = [_name(case) for case in cases]
    whole: dict[str, list[float | None]] = {"step": [case["ms"] for case in cases]}
    parts: dict[str, list[float | None]] = {part: [case["parts_ms"][part] for case in cases] for part in PARTS}
    return [
        Panel("host time of a step", "milliseconds", names, whole, logarithmic=True),
        Panel("its parts", "milliseconds", names, parts, logarithmic=True),
    ]


def _name(case: dict[str, Any]) -> str:
    return f"{case['requests']}, {case['drafter']}"
