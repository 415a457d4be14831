"""Times plain decoding and several hierarchies. They take turns on each prompt, so that a busy machine slows all alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from suffolk.benchmarks.hierarchy.agreement import Ids
from suffolk.build_index.progress import part_progress
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

PLAIN = ""
_MOST_NODES = 256


@dataclass(frozen=True, slots=True)
class TrialRun:
    """One timed answer.

    Attributes:
        tokens: int32[n], the answer.
        steps: passes of the target after the prompt pass.
        seconds: time of decoding, without prompt passes.
        reading: seconds of the drafting levels' prompt passes.
        besides: seconds spent outside passes, sampling and drafters; included in ``seconds``.
    """

    tokens: Ids
    steps: int
    seconds: float
    reading: float
    besides: float


@dataclass(frozen=True, slots=True)
class TrialSummary:
    """The speed of one decoding method.

    Attributes:
        seconds: seconds per token, without the first token of an answer: the sum of each prompt's median over the rounds,
            divided by the number of tokens.
        tokens: tokens per target pass.
        reading: mean seconds that the drafting levels take to read a prompt.
    """

    seconds: float
    tokens: float
    reading: float

    @staticmethod
    def of(rounds: Sequence[Sequence[TrialRun]]) -> TrialSummary:
        """Create from ``rounds``: for each round the run of each prompt."""
        seconds = np.median([[run.seconds for run in runs] for runs in rounds], axis=0).sum()
        every = [run for runs in rounds for run in runs]
        written = sum(len(run.tokens) - 1 for run in every) / len(rounds)
        steps = sum(run.steps for run in every) / len(rounds)
        return TrialSummary(
            float(seconds / max(written, 1)),
            float(written / max(steps, 1)),
            float(np.mean([run.reading for run in every])),
        )


class Trial:
    """A decoding loop for one request at a time, without drafts or with one of several drafters. Not thread-safe."""

    def __init__(self, target: Target, drafters: Mapping[str, Drafter], capacity: int) -> None:
        """``capacity``: tokens of the longest prompt with its answer.

        Raises ResourceExhausted if the cache does not fit into memory.
        """
        self._target, self._drafters = target, dict(drafters)
        self._loop = StepLoop(target, drafters, VerifyAllPlanner(), 1, capacity + _MOST_NODES)
        self._number = 0

    def run(self, way: str, prompt: Ids, settings: SamplingSettings) -> TrialRun:
        """Time one answer with the drafter named ``way``, or ``PLAIN``. Raises the errors of a step."""
        self._number += 1
        read = self._reading(way)
        request = Request(self._number, self._target, prompt, settings, way, _MOST_NODES)
        self._loop.join(request)
        while self._loop.running:
            for _, answer in self._loop.step():
                if isinstance(answer, SuffolkError):
                    raise answer
        reading = self._reading(way) - read
        generated = np.asarray(request.generated, np.int32)
        stats = request.stats
        besides = sum(stats.seconds[part] for part in ("draft", "compact", "other"))
        return TrialRun(generated, stats.steps, stats.decode_seconds - reading, reading, besides)

    def compare(
        self,
        ways: Sequence[str],
        prompts: Sequence[Ids],
        settings: SamplingSettings,
        rounds: int,
    ) -> dict[str, list[list[TrialRun]]]:
        """Run all prompts with each method of ``ways``; the methods alternate prompt by prompt.

        Returns a list of rounds for each method. A round is a list with one run for each prompt.
        """
        found: dict[str, list[list[TrialRun]]] = {way: [[] for _ in range(rounds)] for way in ways}
        with part_progress(rounds * len(prompts), "prompts, all stacks") as done:
            for turn in range(rounds):
                for number, prompt in enumerate(prompts):
                    begin = (turn + number) % len(ways)
                    for way in [*ways[begin:], *ways[:begin]]:
                        found[way][turn].append(self.run(way, prompt, settings))
                    done(turn * len(prompts) + number + 1)
        return found

    def _reading(self, way: str) -> float:
        return self._drafters[way].stats().get("prefill_seconds", 0.0) if way else 0.0
