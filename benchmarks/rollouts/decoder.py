"""Decodes the answers of an epoch, by the clock or along known answers in counted time.

Counted time adds the stored costs of passes and the processor time of all other code. Other programs do not change it.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch

from suffolk.benchmarks.decode.options import PLAIN
from suffolk.benchmarks.rollouts.answers import Answers
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.pass_result import PassResult
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.model.tree_layout import TreeLayout
from suffolk.serving.decoding.engine.sampling.sampler import Sampler
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

_TIMED_ROWS = 16


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to generate: the ids and the name of its prompt, and its settings."""

    ids: list[int]
    prompt: str
    settings: SamplingSettings


Learn: TypeAlias = Callable[[str, list[int]], None]
"""Called with a prompt's name and an answer to it that has just ended."""


class EngineDecoder:
    """Generates the answers of one epoch with one method, by the clock. A free slot takes the next job. Not thread-safe."""

    def __init__(self, engine: Engine, max_nodes: int) -> None:
        """``engine`` has a queue for all jobs of an epoch. The caller closes the engine."""
        self._engine, self._max_nodes = engine, max_nodes

    def clock(self) -> AbstractContextManager[None]:
        """Inside the block, ``time.perf_counter`` is the clock of the measurement."""
        return contextlib.nullcontext()

    def decode(self, way: str, jobs: Sequence[Job], known: Answers, learn: Learn) -> list[Request]:
        """Decode ``jobs`` and return the ended requests. ``known``: the jobs' plain answers; empty if they are not known."""
        running = [
            self._engine.generate(job.ids, job.settings, way, self._max_nodes, DraftOptions(group=job.prompt))
            for job in jobs
        ]
        for job, generation in zip(jobs, running, strict=True):
            list(generation)
            learn(job.prompt, generation.tokens)
        return [generation.request for generation in running]


class CountedDecoder:
    """As ``EngineDecoder``, along known answers in counted time (``CountedPasses``). Each method has a step loop and planner."""

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter | None],
        costs: CostModel,
        slots: int,
        capacity: int,
        max_nodes: int,
    ) -> None:
        """The arguments and errors are those of ``Engine``."""
        self._target, self._max_nodes, self._passes = target, max_nodes, CountedPasses(target, costs)
        self._loops = {
            way: StepLoop(target, {} if drafter is None else {way: drafter}, costs, slots, capacity, "packed")
            for way, drafter in drafters.items()
        }
        self._numbers = itertools.count(1)

    def clock(self) -> AbstractContextManager[None]:
        return self._passes.running()

    def decode(self, way: str, jobs: Sequence[Job], known: Answers, learn: Learn) -> list[Request]:
        loop, requests = self._loops[way], [self._request(way, job) for job in jobs]
        waiting = deque(zip(requests, known, strict=True))
        while waiting or loop.running:
            while waiting and loop.free:
                request, answer = waiting.popleft()
                loop.join(request)
                self._passes.texts[request.slot] = np.asarray([*request.tokens[: request.length], *answer], np.int64)
            for request, step in loop.step():
                if isinstance(step, SuffolkError):
                    raise step
                if step.finish:
                    learn(str(request.options.group), request.generated)
        return requests

    def _request(self, way: str, job: Job) -> Request:
        name, options = "" if way == PLAIN else way, DraftOptions(group=job.prompt)
        return Request(next(self._numbers), self._target, job.ids, job.settings, name, self._max_nodes, options)


Decoder: TypeAlias = EngineDecoder | CountedDecoder


class CountedPasses:
    """Replaces the passes of a target and its sampling above temperature 0. Not thread-safe.

    A pass counts as its cost in ``costs``, and each sampled row as its measured time. All other code runs normally, and counts as
    the processor time of its thread.

    Attributes:
        texts: for each slot int64[n], the prompt and the answer of the slot's request.
        row_seconds: seconds to sample one row.
    """

    def __init__(self, target: Target, costs: CostModel) -> None:
        """``costs``: times of passes, without a planner's corrections."""
        self.texts: dict[int, npt.NDArray[np.int64]] = {}
        self.row_seconds = _row_seconds(target)
        self._costs = costs.copy()
        self._read_clock = time.thread_time
        self._counted = 0.0  # seconds of the replaced passes, minus the processor time of replacing them

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inside the block, targets generate the known texts, and ``time.perf_counter`` returns counted time."""
        with (
            patch.object(Target, "forward", self._forward),
            patch.object(Sampler, "sample", _known_tokens),
            patch.object(time, "perf_counter", self._now),
        ):
            yield

    def _now(self) -> float:
        return self._read_clock() + self._counted

    def _forward(
        self, cache: KVCache, slots: Sequence[int], layouts: Sequence[TreeLayout], wanted: Sequence[int], *_: object
    ) -> PassResult:
        """Return a result whose logits float64[wanted rows, 1] are the known next tokens."""
        begin = self._read_clock()
        tokens = np.concatenate([self._following(cache, *each) for each in zip(slots, layouts, wanted, strict=True)])
        rows, context = sum(map(len, layouts)), float(cache.lengths[list(slots)].mean())
        seconds = self._costs.time(rows, len(slots), context) + len(tokens) * self.row_seconds
        self._counted += seconds - (self._read_clock() - begin)
        return PassResult(torch.from_numpy(tokens.astype(np.float64))[:, None], None)

    def _following(self, cache: KVCache, slot: int, layout: TreeLayout, wanted: int) -> npt.NDArray[np.int64]:
        """Return the known tokens after the last ``wanted`` rows. After the end of the text, its last token is repeated."""
        text = self.texts[slot]
        places = cache.lengths[slot] + layout.depths[len(layout) - wanted :] + 1
        following: npt.NDArray[np.int64] = text[np.minimum(places, len(text) - 1)]
        return following


def _known_tokens(sampler: Sampler, logits: torch.Tensor, contexts: RowContexts) -> torch.Tensor:
    """Return the known tokens, in place of ``Sampler.sample``."""
    return logits[:, 0].to(torch.int64)


def _row_seconds(target: Target) -> float:
    """Measure the time to sample a row: the least of several times, each at a new position."""
    sampler = Sampler(SamplingSettings(_TIMED_ROWS, 1.0), target.vocab_size, target.device)
    logits = torch.zeros((1, target.vocab_size), dtype=target.dtype, device=target.device)
    times = []
    for position in range(_TIMED_ROWS):
        contexts = RowContexts.of_text(np.zeros(position + 1, np.int32), 0)
        begin = time.thread_time()
        sampler.sample(logits, contexts).cpu()
        times.append(time.thread_time() - begin)
    return min(times)
