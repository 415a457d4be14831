"""Finds the first difference between two outputs of one request. With verification ``match``, outputs differ only at near-ties,
that is, where rounding decides between two nearly equal scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from os.path import commonprefix

import numpy as np
import torch

from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.grammar_matcher import GrammarMatcher
from suffolk.serving.decoding.engine.sampling.sampler import Sampler
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two outputs differ.

    Attributes:
        position: index into the generated tokens.
        first, second: the token of each output at this position; None if the output has ended.
        gap: difference of the scores of both tokens in a plain pass; if an output has ended, difference of the two best scores.
            Scores are logits in greedy decoding, else processed logits plus noise. The gap is near 0 for a near-tie.
    """

    position: int
    first: int | None
    second: int | None
    gap: float


def first_difference(
    target: Target, prompt: Sequence[int], first: Sequence[int], second: Sequence[int], settings: SamplingSettings
) -> Difference | None:
    """The first difference of the outputs ``first`` and ``second`` of ``prompt``; None if they are equal."""
    shared = len(commonprefix([list(first), list(second)]))
    one, other = ((tokens[shared] if shared < len(tokens) else None) for tokens in (first, second))
    if one is None and other is None:
        return None
    scores = _scores(target, prompt, first[:shared], settings)
    if one is None or other is None:
        best = scores.topk(2).values
        return Difference(shared, one, other, float(best[0] - best[1]))
    return Difference(shared, one, other, abs(float(scores[one] - scores[other])))


def _scores(
    target: Target, prompt: Sequence[int], generated: Sequence[int], settings: SamplingSettings
) -> torch.Tensor:
    text = np.asarray([*prompt, *generated], np.int32)
    logits = target.prefill(text.tolist(), target.new_cache(1, len(text)))
    matcher, ends = GrammarMatcher.of(target, settings.grammar), settings.ends(target.eos_ids)
    sampler = Sampler(settings, target.vocab_size, target.device, matcher, ends)
    with torch.inference_mode():
        return sampler.scores(logits, RowContexts.of_text(text, len(prompt)))[0].double()
