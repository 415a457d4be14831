"""Verifies a draft with one level's logits, and samples the level's next token.

With verification ``match``, a level samples with the target's seeded noise, and accepts drafted tokens while they are equal to its
samples. So the chain holds exactly the tokens that the level samples without a draft.

With ``rejection``, each level does speculative sampling of the chain below. Its output then has the level's own distribution
(theorem 2.1 of "Fast Inference via Hierarchical Speculative Decoding"). Each level has its own random stream and uses each number
once. So a position that is sampled again after a rejection does not depend on the rejected token.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from suffolk.serving.decoding.drafters.hierarchy.draft_segment import DraftSegment, Path
from suffolk.serving.decoding.drafters.neural.coupled_sampling import distributions, drafter_sampler, noisy_scores
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.sampling.sampler import Sampler
from suffolk.serving.decoding.engine.sampling.seeded_noise import SeededUniforms
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.engine.sampling.verification.rejection import verify_chain


class FreshUniforms:
    """The random stream of one level for one request. Each number is used once. Not thread-safe."""

    def __init__(self, seed: int, level: int, device: torch.device) -> None:
        """``level``: 1 or more. Stream 0 is the target's."""
        self._uniforms = SeededUniforms(seed, device, level)
        self._device = device
        self._used = 0

    def take(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The next ``count`` coins, and the next ``count`` numbers to sample with, each float64[count]."""
        places = torch.arange(self._used, self._used + count, device=self._device)
        self._used += count
        return self._uniforms.coins(places), self._uniforms.draws(places)


class SamplerCache:
    """The samplers of a request, one per temperature. Levels of equal temperature share a sampler. Not thread-safe."""

    def __init__(self, settings: SamplingSettings, vocab_size: int, device: torch.device) -> None:
        """``vocab_size``: the number of ids that any level may draft."""
        self._settings, self._vocab_size, self._device = settings, vocab_size, device
        self._made: dict[float, Sampler] = {}

    def at(self, temperature: float | None) -> Sampler:
        """The sampler at ``temperature``; None for the request's temperature. All levels of a greedy request are greedy."""
        requested = self._settings.temperature
        used = requested if temperature is None or requested == 0 else temperature
        if used not in self._made:
            settings = replace(self._settings, temperature=used)
            self._made[used] = drafter_sampler(settings, self._vocab_size, self._device)
        return self._made[used]


def match_draft(
    sampler: Sampler, request: DraftRequest, path: Path, draft: DraftSegment, logits: torch.Tensor
) -> DraftSegment:
    """The level's samples while ``draft`` equals them, and one more sample.

    ``logits``: float[draft + 1, vocab]. The result's ``draft_probs`` are the softmax of the noisy scores.
    """
    found = noisy_scores(sampler, request, _paths(path, draft.tokens), logits)
    best = found.max(-1)
    probs = (best.values - found.logsumexp(-1)).exp().double().cpu().numpy()
    sampled: list[int] = best.indices.tolist()
    agreed = 0
    while agreed < len(draft) and sampled[agreed] == draft.tokens[agreed]:
        agreed += 1
    size, unknown = agreed + 1, np.flatnonzero(np.isnan(probs[: agreed + 1]))
    if len(unknown):
        size = int(unknown[0])
    return DraftSegment(tuple(sampled[:size]), probs[:size], is_cut=len(unknown) > 0)


def speculative_sample(
    sampler: Sampler,
    uniforms: FreshUniforms,
    request: DraftRequest,
    path: Path,
    draft: DraftSegment,
    logits: torch.Tensor,
    vocab_size: int,
) -> DraftSegment:
    """Speculative sampling of ``draft`` with a level's ``logits``, float[draft + 1, ids].

    The distributions of the result are over ``vocab_size`` ids. The chain ends if the level allows no token, or at NaN logits.
    Tokens sampled before are kept, because dropping them would bias the distribution.
    """
    rows = distributions(sampler, request, _paths(path, draft.tokens), logits)
    sums = rows.sum(-1)
    placeholder = torch.eye(1, rows.shape[1], dtype=rows.dtype, device=rows.device)
    rows[~(sums > 0)] = placeholder  # the sample of this row is dropped below
    if rows.shape[1] < vocab_size:
        rows = torch.nn.functional.pad(rows, (0, vocab_size - rows.shape[1]))
    coins, draws = uniforms.take(len(draft) + 1)
    below = draft.distribution.to(rows.device) if len(draft) and draft.distribution is not None else None
    verified = verify_chain(np.asarray(draft.tokens, np.int64), below, rows, coins, draws)
    last = float(sums[verified.accepted])
    kept = verified.accepted + (1 if last > 0 else 0)
    tokens = (*draft.tokens[: verified.accepted], verified.token)[:kept]
    return DraftSegment(tokens, np.zeros(kept), rows[:kept], is_cut=math.isnan(last))


def _paths(path: Path, draft: Path) -> list[np.ndarray]:
    """The drafted tokens before each row of a pass over ``draft``."""
    whole = np.asarray(path + draft, np.int64)
    return [whole[: len(path) + place] for place in range(len(draft) + 1)]
