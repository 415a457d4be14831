"""What the noise that the target will draw with says about retrieved tokens.

The target takes the token with the highest log probability plus Gumbel noise, and the noise is a hash of seed, position and token
(``keyed_noise.py``): known before the draw. So of two tokens that followed equally often, that with more noise is the likelier one.
Were the target's own probability p of a token known, noise g would make it exp(-(1 - p) / p * exp(-g)). It is not: an average over
texts stands for it, and in most texts the target is nearly sure of a token or of another. What is left is fitted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from datastore.draft_tree import DraftTree
from serving.decoding.drafter import DraftRequest
from serving.decoding.settings import SamplingSettings
from serving.drafters.tree_chances import Floats, chances_of, with_chances

MEAN_NOISE = 0.5772156649015329
"""Of standard Gumbel noise: Euler's constant."""
WEIGHTS = (-0.012, 1.057, 0.270, -0.058)
"""Of 1, the log-odds, the noise above its mean times the temperature, and the product of both: fitted by ``benchmarks.fit_noise``
to the answers that the priors were fitted to, drawn at temperature 0.7; alike at 1."""
BREADTH = 4
"""Times as many nodes are looked up as may be proposed: the noise chooses among them."""
_LEAST = 1e-6
_WARMEST, _SUREST = 1.0, 4.5
"""Temperature and log-odds from which on more of them changes nothing: none were seen, and a line goes on for ever."""


def knows_noise(settings: SamplingSettings) -> bool:
    """Whether all that the target takes is drawn with noise that can be known beforehand. Under ``rejection`` and ``typical`` other
    things decide too, and nothing was fitted."""
    return settings.temperature > 0 and settings.verification == "match"


def features(chances: Floats, noise: Floats, temperature: float) -> Floats:
    """float64[n, 4], what ``WEIGHTS`` are multiplied with: of tokens with ``chances`` before their ``noise`` is known."""
    known = np.clip(chances, _LEAST, 1 - _LEAST)
    odds, moved = np.log(known / (1 - known)), min(temperature, _WARMEST) * (noise - MEAN_NOISE)
    return np.stack([np.ones(len(odds)), odds, moved, moved * np.minimum(odds, _SUREST)], axis=1)


def drawn_chances(chances: Floats, noise: Floats, temperature: float) -> Floats:
    """float64[n]: what remains of ``chances`` (float64[n], in 0..1) once the ``noise`` of each token is known."""
    return np.asarray(1.0 / (1.0 + np.exp(-features(chances, noise, temperature) @ WEIGHTS)), np.float64)


def noise_of(request: DraftRequest, trees: Sequence[DraftTree], above: Sequence[int]) -> Floats:
    """float64[nodes of all], the noise of each node of ``trees``, which hang behind so many tokens more than the request's."""
    import torch  # here, so that planning a hierarchy needs none

    from serving.decoding.keyed_noise import KeyedNoise

    noise = KeyedNoise(request.settings.seed, 0, torch.device("cpu"))
    first = len(request.tokens) - 1
    positions = np.concatenate([tree.depths() + (first + more) for tree, more in zip(trees, above, strict=True)])
    tokens = np.concatenate([tree.tokens for tree in trees])
    return noise.at(torch.from_numpy(positions.astype(np.int64)), torch.from_numpy(tokens.astype(np.int64))).numpy()


def with_noise(request: DraftRequest, trees: Sequence[DraftTree], above: Sequence[int]) -> list[DraftTree]:
    """``trees`` with the scores that their nodes have once the noise of the request's draws is known; ``above``: as for
    ``noise_of``. Siblings may add up to more than their parent: at most one of them is drawn, but which is not known."""
    if not any(map(len, trees)):
        return list(trees)
    behind = np.concatenate([chances_of(tree) for tree in trees])
    chances = drawn_chances(behind, noise_of(request, trees, above), request.settings.temperature)
    ends = np.cumsum([len(tree) for tree in trees])[:-1]
    return [with_chances(tree, own) for tree, own in zip(trees, np.split(chances, ends), strict=True)]
