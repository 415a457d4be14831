"""Decodes the answers of an epoch: by the clock, or along known answers in counted time."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

from suffolk.benchmarks.decode.options import PLAIN
from suffolk.benchmarks.rollouts.answers import Answers
from suffolk.benchmarks.rollouts.counted_passes import CountedPasses
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings


@dataclass(frozen=True, slots=True)
class Job:
    """One answer to generate: the ids and the name of its prompt, and its settings."""

    ids: list[int]
    prompt: str
    settings: SamplingSettings


Learn: TypeAlias = Callable[[str, list[list[int]]], None]
"""Called with a prompt's name and its answers that have just ended."""


class Decoder(Protocol):
    """Generates the answers of one epoch with one method. A slot that becomes free takes the next job. Not thread-safe."""

    def clock(self) -> AbstractContextManager[None]:
        """Inside the block, ``time.perf_counter`` is the clock of the measurement."""
        ...

    def decode(self, way: str, jobs: Sequence[Job], known: Answers, learn: Learn) -> list[Request]:
        """The ended requests. ``known``: the plain answers of the jobs; empty if they are not known."""
        ...


class EngineDecoder:
    """Decodes with an engine, by the clock."""

    def __init__(self, engine: Engine, max_nodes: int) -> None:
        """``engine`` has a queue for all jobs of an epoch; the caller closes it."""
        self._engine, self._max_nodes = engine, max_nodes

    def clock(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def decode(self, way: str, jobs: Sequence[Job], known: Answers, learn: Learn) -> list[Request]:
        running = [
            self._engine.generate(job.ids, job.settings, way, self._max_nodes, DraftOptions(group=job.prompt))
            for job in jobs
        ]
        for job, generation in zip(jobs, running, strict=True):
            for _ in generation:
                pass
            learn(job.prompt, [generation.tokens])
        return [generation.request for generation in running]


class CountedDecoder:
    """Decodes along known answers, in counted time (``CountedPasses``). Each method has a step loop, with its own planner."""

    def __init__(
        self,
        target: Target,
        drafters: Mapping[str, Drafter | None],
        costs: CostModel,
        slots: int,
        capacity: int,
        max_nodes: int,
    ) -> None:
        """Arguments and errors as for ``Engine``."""
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
                    learn(str(request.options.group), [request.generated])
        return requests

    def _request(self, way: str, job: Job) -> Request:
        name, options = "" if way == PLAIN else way, DraftOptions(group=job.prompt)
        return Request(next(self._numbers), self._target, job.ids, job.settings, name, self._max_nodes, options)
