"""Times the passes of levels, plain decoding, and hierarchies. They take turns, so a busy machine slows all alike."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from suffolk.benchmarks.hierarchy.agreement import Ids, ModelVariant, TargetAnswer
from suffolk.benchmarks.parts import rotated
from suffolk.build_index.progress import part_progress
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.drafters.hierarchy.draft_segment import DraftSegment, Floats, LevelQuery
from suffolk.serving.decoding.drafters.hierarchy.level_sampling import (
    FreshUniforms,
    SamplerCache,
    match_draft,
    speculative_sample,
)
from suffolk.serving.decoding.drafters.hierarchy.model_level import ModelLevel
from suffolk.serving.decoding.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.decoding.drafters.neural.coupled_sampling import needs_distributions
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import Drafter, DraftRequest
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

SIZES = (0, 1, 2, 3, 4, 6, 8, 12, 15, 16)
"""Numbers of drafted tokens of the timed passes. Costs in between are interpolated.

A pass reads one token more than it verifies. With tiles of 16 rows, a pass over 17 tokens costs much more than one over
16, so both are timed.
"""
_ROUNDS = 5


def time_passes(variants: Sequence[ModelVariant], texts: Sequence[TargetAnswer]) -> list[Floats]:
    """Return float64[17] for each variant: entry d is the median seconds of a pass that verifies d drafted tokens.

    Each round times all levels, so a slow moment of the machine affects all alike. Prefixes of ``texts`` serve as contexts, in
    turn.
    """
    capacity = max(len(text.prompt) + len(text.generated) for text in texts) + SIZES[-1]
    common = min(variant.model.vocab_size for variant in variants)
    levels = [
        ModelLevel(variant.name, 1, variant.model, CostModel([1], [1.0]), 1, capacity, variant.temperature)
        for variant in variants
    ]
    times = np.zeros((len(levels), len(SIZES), _ROUNDS))
    with part_progress(times.size, "passes of each level") as done:
        for turn in range(_ROUNDS):
            text = texts[turn % len(texts)]
            request = text.request(len(text.generated) * (turn + 1) // (_ROUNDS + 1))
            for number, level in enumerate(levels):
                while level.pending(0, request.tokens) > 1:
                    level.read(0, request.tokens)
                for place, size in enumerate(SIZES):
                    is_target = number == len(levels) - 1
                    times[number, place, turn] = _time(level, request, size, common, not is_target)
                done((turn * len(levels) + number + 1) * len(SIZES))
    medians = np.median(times, axis=2)
    return [np.interp(np.arange(SIZES[-1] + 1), SIZES, np.maximum.accumulate(each)) for each in medians]


def time_lookups(source: RetrievalLevel, texts: Sequence[TargetAnswer], tokens: int) -> float:
    """Return the median seconds of a call for up to ``tokens`` tokens, over prefixes of ``texts``."""
    times = []
    for text in texts:
        for place in range(len(text.generated)):
            begin = time.perf_counter()
            source.answer([text.request(place)], [LevelQuery(0, (), count=tokens)])
            times.append(time.perf_counter() - begin)
        for each in source.sources:
            each.release(0)
    return float(np.median(times))


@torch.inference_mode()
def _time(level: ModelLevel, request: DraftRequest, size: int, vocab_size: int, is_shared: bool) -> float:
    """Return the seconds of one pass. ``is_shared``: the level below has already computed the noise of all rows but the last."""
    device = level.model.device
    draft = np.resize(request.tokens, size) % vocab_size
    rejection = needs_distributions(request.settings)
    rows = torch.full((size, vocab_size), 1 / vocab_size, dtype=torch.float64, device=device) if rejection else None
    segment = DraftSegment(tuple(draft.tolist()), np.ones(size), rows)
    sampler = SamplerCache(request.settings, vocab_size, device).at(level.temperature)
    if is_shared and size and not rejection:
        match_draft(sampler, request, (), segment.head(size - 1), torch.zeros((size, vocab_size), device=device))
    uniforms = FreshUniforms(request.settings.seed, 1, device)
    begin = time.perf_counter()
    [logits] = level.answer([0], [request], [LevelQuery(0, (), segment.tokens)])
    if rejection:
        speculative_sample(sampler, uniforms, request, (), segment, logits[:, :vocab_size], vocab_size)
    else:
        match_draft(sampler, request, (), segment, logits[:, :vocab_size])
    level.model.synchronize()
    return time.perf_counter() - begin


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
        besides: seconds outside passes, sampling and drafters. ``seconds`` includes these.
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
        seconds: seconds per token: each prompt's median over the rounds, summed over all prompts, and divided by all their tokens.
            The first token of an answer is left out.
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
        self, prompts: Sequence[Ids], settings: SamplingSettings, rounds: int
    ) -> dict[str, list[list[TrialRun]]]:
        """Run all prompts with plain decoding and with each drafter; the methods alternate prompt by prompt.

        Returns a list of rounds for each method. A round is a list with one run for each prompt.
        """
        ways = (PLAIN, *self._drafters)
        found: dict[str, list[list[TrialRun]]] = {way: [[] for _ in range(rounds)] for way in ways}
        with part_progress(rounds * len(prompts), "prompts, all stacks") as done:
            for turn in range(rounds):
                for number, prompt in enumerate(prompts):
                    for way in rotated(ways, turn + number):
                        found[way][turn].append(self.run(way, prompt, settings))
                    done(turn * len(prompts) + number + 1)
        return found

    def _reading(self, way: str) -> float:
        return self._drafters[way].stats().get("prefill_seconds", 0.0) if way else 0.0
