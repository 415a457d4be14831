"""What a request's own way to draw makes of a drafter's logits: its temperature, cuts and penalties, and the target's own noise.

The target draws with noise that is keyed by seed, position and token (``keyed_noise.py``), so a drafter that adds the same noise
proposes the same token more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.model.row_contexts import RowContexts
from suffolk.serving.engine.sampling.sampler import Sampler
from suffolk.serving.engine.sampling.settings import SamplingSettings

Paths = Sequence[npt.NDArray[np.integer]]
"""For each row the drafted tokens behind which it stands, from the top down."""


def own_sampler(settings: SamplingSettings, vocab_size: int, device: torch.device) -> Sampler:
    """A drafter's view of ``settings``: without users' functions, which act on the target's draws alone, and without bad words
    that have ids beyond its ``vocab_size``, which it drafts nowhere."""
    words = tuple(word for word in settings.bad_words if max(word) < vocab_size)
    return Sampler(replace(settings, processors=(), token_mask=None, bad_words=words), vocab_size, device)


def contexts(request: DraftRequest, paths: Paths) -> RowContexts:
    """The texts of ``request`` with ``paths`` behind them."""
    depths = np.array([len(path) for path in paths], np.int64)
    padded = np.full((len(paths), int(depths.max(initial=0))), -1, np.int64)
    for row, path in enumerate(paths):
        padded[row, : len(path)] = path
    return RowContexts(request.tokens, request.prompt_tokens, padded, depths)


def scores(sampler: Sampler, request: DraftRequest, paths: Paths, logits: torch.Tensor) -> torch.Tensor:
    """float[rows, vocab], what the draw behind each of ``paths`` would take the argmax of: ``logits`` processed, with its noise.
    NaN where nothing can be drawn."""
    if sampler.is_plain_greedy:
        return logits.float()
    try:
        return sampler.scores(logits, contexts(request, paths)).float()
    except SuffolkError:  # of this text alone: whoever checks its draft says so, and other texts have theirs
        return torch.full_like(logits, torch.nan, dtype=torch.float32)


def laws(sampler: Sampler, request: DraftRequest, paths: Paths, logits: torch.Tensor) -> torch.Tensor:
    """float64[rows, vocab], the law of the draw behind each of ``paths``; all 0 where no token is allowed, and NaN as in
    ``scores``."""
    try:
        return sampler.probabilities(logits, contexts(request, paths))
    except SuffolkError:
        return torch.full_like(logits, torch.nan, dtype=torch.float64)
