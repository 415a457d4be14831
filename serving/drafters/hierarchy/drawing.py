"""What a level makes of its logits: its own tokens as far as the draft below agrees with them, and one more.

Under verification ``match`` a level draws with the target's own keyed noise and follows the draft while it agrees: any chain is
exact then. Under ``rejection`` each level does speculative sampling on the chain of the level below, so that what it hands up
follows its own law (theorem 2.1 of the paper), and its coins and draws are of streams of its own, each number used once:
positions are drawn again after a rejection, and what is drawn there must know nothing of what was rejected.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from suffolk.serving.drafters.hierarchy.draft_segment import DraftSegment, Floats, Path
from suffolk.serving.drafters.neural.coupled_sampling import laws, own_sampler, scores
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.sampling.sampler import Sampler
from suffolk.serving.engine.sampling.seeded_noise import SeededUniforms
from suffolk.serving.engine.sampling.settings import SamplingSettings
from suffolk.serving.engine.sampling.verification.rejection import verify_chain


class FreshUniforms:
    """Coins and draws of one level for one request, each used once. Not thread-safe."""

    def __init__(self, seed: int, level: int, device: torch.device) -> None:
        """``level``: 1 or more; 0 are the target's."""
        self._uniforms = SeededUniforms(seed, device, level)
        self._device = device
        self._used = 0

    def take(self, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """float64[count] twice: the next coins, and the next draws."""
        places = torch.arange(self._used, self._used + count, device=self._device)
        self._used += count
        return self._uniforms.coins(places), self._uniforms.draws(places)


class Samplers:
    """A request's samplers, one for each temperature that its levels draw at: the noise of a position is then made once for all
    levels. Not thread-safe."""

    def __init__(self, settings: SamplingSettings, vocab_size: int, device: torch.device) -> None:
        """``vocab_size``: of the ids that any level may draw."""
        self._settings, self._vocab_size, self._device = settings, vocab_size, device
        self._made: dict[float, Sampler] = {}

    def at(self, temperature: float | None) -> Sampler:
        """That of ``temperature``, None for the request's own; a greedy request's levels are greedy."""
        own = self._settings.temperature
        warmth = own if temperature is None or own == 0 else temperature
        if warmth not in self._made:
            settings = replace(self._settings, temperature=warmth)
            self._made[warmth] = own_sampler(settings, self._vocab_size, self._device)
        return self._made[warmth]


def follow(
    sampler: Sampler, request: DraftRequest, path: Path, draft: DraftSegment, logits: torch.Tensor
) -> DraftSegment:
    """Of a level's own draws those that ``draft`` agrees with, and one more; ``logits`` float[draft + 1, vocab].

    ``own`` is the level's probability of each, at a temperature above 0 that of the best of its noisy scores.
    """
    found = scores(sampler, request, _paths(path, draft.tokens), logits)
    best = found.max(-1)
    own = (best.values - found.logsumexp(-1)).exp().double().cpu().numpy()
    drawn: list[int] = best.indices.tolist()
    agreed = 0
    while agreed < len(draft) and drawn[agreed] == draft.tokens[agreed]:
        agreed += 1
    size, unknown = agreed + 1, np.flatnonzero(np.isnan(own[: agreed + 1]))
    if len(unknown):
        size = int(unknown[0])
    return DraftSegment(tuple(drawn[:size]), own[:size], is_cut=len(unknown) > 0)


def resample(
    sampler: Sampler,
    uniforms: FreshUniforms,
    request: DraftRequest,
    path: Path,
    draft: DraftSegment,
    logits: torch.Tensor,
    vocab_size: int,
) -> DraftSegment:
    """Speculative sampling of ``draft`` by a level with these ``logits`` float[draft + 1, ids]; the laws are over ``vocab_size``.

    Where the level allows no token behind a drafted one, or its logits are no numbers, its chain ends there. What was drawn before
    is handed up all the same: to drop it would be to choose among tokens by what stands behind them.
    """
    own = laws(sampler, request, _paths(path, draft.tokens), logits)
    sums = own.sum(-1)
    own[~(sums > 0)] = torch.eye(
        1, own.shape[1], dtype=own.dtype, device=own.device
    )  # any law: its draw is not handed up
    if own.shape[1] < vocab_size:
        own = torch.nn.functional.pad(own, (0, vocab_size - own.shape[1]))
    coins, draws = uniforms.take(len(draft) + 1)
    law = draft.law if len(draft) else None
    verdict = verify_chain(
        np.asarray(draft.tokens, np.int64), None if law is None else law.to(own.device), own, coins, draws
    )
    last = float(sums[verdict.accepted])
    kept = verdict.accepted + (1 if last > 0 else 0)
    tokens = (*draft.tokens[: verdict.accepted], verdict.token)[:kept]
    return DraftSegment(tokens, _unknown(kept), own[:kept], is_cut=math.isnan(last))


def _unknown(size: int) -> Floats:
    return np.zeros(size)


def _paths(path: Path, draft: Path) -> list[np.ndarray]:
    """The drafted tokens behind which each row of a pass stands."""
    whole = np.asarray(path + draft, np.int64)
    return [whole[: len(path) + place] for place in range(len(draft) + 1)]
