"""Estimates the distribution of accepted run lengths from token acceptance along texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from suffolk.serving.decoding.drafters.hierarchy.level import RunDistribution

Floats = npt.NDArray[np.float64]
Starts = Floats
"""The drafts that one drafter could start at each place of a text: float64[n, depth].

Entry (s, k) belongs to token k of a draft from place s. It is the probability that this token is accepted if all tokens
before it are. It is 0 after the end of a draft. It is NaN if unknown: after the end of the text, or where the text
differs from the draft.
"""


def model_starts(chances: Floats, depth: int) -> Starts:
    """Return the ``Starts`` of a model whose acceptance at each place is ``chances``.

    ``chances``: float64[n]; a model's acceptance does not depend on where a draft began.
    """
    padded = np.append(chances, np.full(depth - 1, np.nan))
    return np.lib.stride_tricks.sliding_window_view(padded, depth)


def round_weights(starts: Starts, longest: int) -> Floats:
    """Return float64[n]: the expected number of rounds that begin at each place.

    Drafts have up to ``longest`` tokens. A round begins one token after the last one that the previous round accepted.
    """
    size = len(starts)
    weights = np.zeros(size + longest + 2)
    weights[0] = 1.0
    known = np.nan_to_num(starts[:, :longest], nan=0.0)
    reach = np.concatenate([np.ones((size, 1)), np.cumprod(known, axis=1)], axis=1)
    lengths = -np.diff(reach, axis=1, append=0.0)
    for place in range(size):
        weights[place + 1 : place + 1 + lengths.shape[1]] += weights[place] * lengths[place]
    return weights[:size]


def fit_run_distribution(drafter: str, verifier: str, texts: Sequence[Starts], longest: int) -> RunDistribution:
    """The distribution of the run that ``verifier`` accepts from ``drafter``, with rounds of up to ``longest`` tokens.

    It is a product of continuation rates (the estimator of Kaplan and Meier 1958). The rate at a length is the
    weighted share of the rounds reaching it whose run continues. A run cut off by the end of the text does not count
    as ended. Beyond the longest observed run the last rate applies.
    """
    depth = texts[0].shape[1]
    gone, came = np.zeros(depth), np.zeros(depth)
    for text in texts:
        reached = round_weights(text, longest)
        for place in range(depth):
            chance = text[:, place]
            known = ~np.isnan(chance)
            came[place] += reached[known].sum()
            reached = np.where(known, reached * np.nan_to_num(chance), 0.0)
            gone[place] += reached.sum()
    seen = came > 0
    hazards = np.divide(gone, came, out=np.zeros(depth), where=seen)
    if seen.any() and not seen.all():
        hazards[~seen] = hazards[seen][-1]
    reach = np.append(1.0, np.cumprod(np.clip(hazards, 0.0, 1.0)))
    lengths = np.append(reach[:-1] - reach[1:], reach[-1])
    return RunDistribution(drafter, verifier, tuple((lengths / lengths.sum()).tolist()))


def mean_acceptance(texts: Sequence[Starts]) -> float:
    """The share of places in the texts at which the first drafted token is accepted."""
    first = np.concatenate([text[:, 0] for text in texts])
    first = first[~np.isnan(first)]
    return float(first.mean()) if len(first) else 0.0
