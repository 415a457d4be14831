"""Applies a request's sampling settings to a drafter's logits, with the same seeded noise as the target.

The target's noise depends only on seed, position and token (``seeded_noise.py``). A drafter that adds the same noise samples the
target's token more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.model.row_contexts import RowContexts
from suffolk.serving.decoding.engine.sampling.sampler import Sampler
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

Paths = Sequence[npt.NDArray[np.integer]]
"""The drafted tokens before each row, from the root down."""


def needs_distributions(settings: SamplingSettings) -> bool:
    """Whether a draft must be a chain with the distributions that its tokens were sampled from.

    This holds with verification ``rejection`` at a temperature above 0.
    """
    return settings.temperature > 0 and settings.verification == "rejection"


def drafter_sampler(settings: SamplingSettings, vocab_size: int, device: torch.device) -> Sampler:
    """A sampler for a drafter with ``vocab_size`` token ids.

    It omits the user's own functions and the grammar, which apply to the target only. It also omits bad words and logit biases
    with ids outside ``vocab_size``.
    """
    words = tuple(word for word in settings.bad_words if max(word) < vocab_size)
    biases = tuple((token, value) for token, value in settings.logit_bias if token < vocab_size)
    own = replace(settings, processors=(), token_mask=None, grammar=None, bad_words=words, logit_bias=biases)
    return Sampler(own, vocab_size, device)


def contexts(request: DraftRequest, paths: Paths) -> RowContexts:
    """The contexts of ``request`` with each of ``paths`` appended."""
    depths = np.array([len(path) for path in paths], np.int64)
    padded = np.full((len(paths), int(depths.max(initial=0))), -1, np.int64)
    for row, path in enumerate(paths):
        padded[row, : len(path)] = path
    return RowContexts(request.tokens, request.prompt_tokens, padded, depths)


def noisy_scores(sampler: Sampler, request: DraftRequest, paths: Paths, logits: torch.Tensor) -> torch.Tensor:
    """float[rows, vocab], the processed ``logits`` plus noise. The argmax of a row is its sampled token.

    All NaN if the settings allow no token.
    """
    if sampler.is_plain_greedy:
        return logits.float()
    try:
        return sampler.scores(logits, contexts(request, paths)).float()
    except SuffolkError:
        # NaN makes this request's draft fail; other requests keep their drafts
        return torch.full_like(logits, torch.nan, dtype=torch.float32)


def distributions(sampler: Sampler, request: DraftRequest, paths: Paths, logits: torch.Tensor) -> torch.Tensor:
    """float64[rows, vocab], the sampling distribution after each of ``paths``.

    A row is all 0 if no token is allowed. All rows are NaN if ``sampler`` raises a SuffolkError.
    """
    try:
        return sampler.probabilities(logits, contexts(request, paths))
    except SuffolkError:
        return torch.full_like(logits, torch.nan, dtype=torch.float64)
