"""Times the passes of levels, with sampling, by the number of drafted tokens that they verify."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from suffolk.benchmarks.hierarchy.agreement import ModelVariant, TargetAnswer
from suffolk.build_index.progress import part_progress
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
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest

SIZES = (0, 1, 2, 3, 4, 6, 8, 12, 15, 16)
"""Drafted tokens of the timed passes; costs in between are interpolated.

A pass reads one token more than it verifies. With tiles of 16 rows, a pass over 17 tokens costs much more than one over
16, so both are timed.
"""
_ROUNDS = 5


def time_passes(variants: Sequence[ModelVariant], texts: Sequence[TargetAnswer]) -> list[Floats]:
    """Return float64[17] for each variant: entry d is the median seconds of a pass that verifies d drafted tokens.

    Rounds over all levels spread the noise of a busy machine. ``texts``: their prefixes serve as contexts, in turn.
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
    """The median seconds of a call for up to ``tokens`` tokens after each prefix of ``texts``."""
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
    """``is_shared``: the level below has already computed the noise of every row except the last."""
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
