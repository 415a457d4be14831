"""What a pass of a level takes with all that is made of it, by the drafted tokens that it verifies."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from suffolk.serving.drafters.hierarchy.agreement import Voice, WrittenText
from suffolk.serving.drafters.hierarchy.draft_segment import Ask, DraftSegment, Floats
from suffolk.serving.drafters.hierarchy.drawing import FreshUniforms, Samplers, follow, resample
from suffolk.serving.drafters.hierarchy.model_level import ModelLevel
from suffolk.serving.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.policy.cost_model import CostModel

SIZES = (0, 1, 2, 3, 4, 6, 8, 12, 15, 16)
"""Drafted tokens of the passes that are timed; between them costs are taken to rise evenly. A pass reads a token more: tiles of 16
rows make one of 17 cost much more than one of 16, which a line from 13 to 17 would hide."""
_ROUNDS = 5


def time_passes(
    voices: Sequence[Voice],
    texts: Sequence[WrittenText],
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[Floats]:
    """For each voice float64[17], entry d the median seconds of a pass that verifies d drafted tokens and draws behind them.

    ``texts``: behind whose beginnings they are timed, in turn; in rounds, so that a busy while does not fall on one level.
    ``report``: is told the passes done and their number.
    """
    capacity = max(len(text.prompt) + len(text.written) for text in texts) + SIZES[-1]
    common = min(voice.model.vocab_size for voice in voices)
    levels = [
        ModelLevel(voice.name, 1, voice.model, CostModel([1], [1.0]), 1, capacity, voice.temperature)
        for voice in voices
    ]
    times = np.zeros((len(levels), len(SIZES), _ROUNDS))
    total = times.size
    for turn in range(_ROUNDS):
        text = texts[turn % len(texts)]
        request = text.request(len(text.written) * (turn + 1) // (_ROUNDS + 1))
        for number, level in enumerate(levels):
            while level.pending(0, request.tokens) > 1:
                level.read(0, request.tokens)
            for place, size in enumerate(SIZES):
                is_target = number == len(levels) - 1
                times[number, place, turn] = _time(level, request, size, common, not is_target)
            report((turn * len(levels) + number + 1) * len(SIZES), total)
    medians = np.median(times, axis=2)
    return [np.interp(np.arange(SIZES[-1] + 1), SIZES, np.maximum.accumulate(each)) for each in medians]


def time_lookups(source: RetrievalLevel, texts: Sequence[WrittenText], tokens: int) -> float:
    """The median seconds of a call for up to ``tokens`` tokens behind the beginnings of ``texts``."""
    times = []
    for text in texts:
        for place in range(len(text.written)):
            begin = time.perf_counter()
            source.answer([text.request(place)], [Ask(0, (), count=tokens)])
            times.append(time.perf_counter() - begin)
        for each in source.sources:
            each.release(0)
    return float(np.median(times))


@torch.inference_mode()
def _time(level: ModelLevel, request: DraftRequest, size: int, vocab_size: int, is_shared: bool) -> float:
    """``is_shared``: the level below has drawn before, so that noise is there but for the last row."""
    device = level.model.device
    draft = np.resize(request.tokens, size) % vocab_size
    is_drawn = request.settings.temperature > 0 and request.settings.verification == "rejection"
    law = torch.full((size, vocab_size), 1 / vocab_size, dtype=torch.float64, device=device) if is_drawn else None
    handed = DraftSegment(tuple(draft.tolist()), np.ones(size), law)
    sampler = Samplers(request.settings, vocab_size, device).at(level.temperature)
    if is_shared and size and not is_drawn:
        follow(sampler, request, (), handed.head(size - 1), torch.zeros((size, vocab_size), device=device))
    uniforms = FreshUniforms(request.settings.seed, 1, device)
    begin = time.perf_counter()
    [logits] = level.answer([0], [request], [Ask(0, (), handed.tokens)])
    if is_drawn:
        resample(sampler, uniforms, request, (), handed, logits[:, :vocab_size], vocab_size)
    else:
        follow(sampler, request, (), handed, logits[:, :vocab_size])
    level.model.synchronize()
    return time.perf_counter() - begin
