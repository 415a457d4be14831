"""Predicts the cost of a hierarchy, surplus tokens included: a level passes on all that it has, more than its length at times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from suffolk.serving.drafters.hierarchy.levels import Levels
from suffolk.serving.drafters.hierarchy.rounds import gain_distribution, renewals


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected ``seconds`` a token, and ``tokens`` a pass of the target."""

    seconds: float
    tokens: float


def predict(levels: Levels, chosen: Sequence[int], lengths: Sequence[int]) -> Prediction:
    """The exact expectation for algorithm 1 of the paper, with independent acceptances. Thread-safe.

    A level stops once it has its length, and its last round may gain more. The paper's theorem 2.2 counts the length alone and is 4
    to 5 % too pessimistic for its own example. Here the distribution of the draft length is carried from level to level. A round
    gains more than j tokens if j or more were drafted and the first j are accepted. ``renewals`` gives the expected rounds of a
    call, and the distribution of the count that ends it. By Wald's equation a call costs its expected rounds times a round.

    Takes O(length * sum of lengths) a level.

    Args (not checked):
        chosen: numbers of levels, rising, the target last; one or more.
        lengths: the least tokens that each of ``chosen`` but the target drafts, in the same order; 1 or more.

    Source: "Fast Inference via Hierarchical Speculative Decoding", algorithm 1 and section 2.4; surplus tokens are ours.
    """
    target = levels.levels[-1]
    if len(chosen) == 1:
        return Prediction(float(target.pass_seconds(0)), 1.0)
    bottom = levels.levels[chosen[0]]
    size = bottom.draft_lengths(lengths[0])  # the distribution of the draft length of the level below
    seconds = float(bottom.draft_seconds(lengths[0]))
    reach, a_round = _round(levels, chosen[0], chosen[1], size, seconds)
    if bottom.found is not None:  # the pair's runs include how often nothing is found
        reach = levels.reach(chosen[0], chosen[1], lengths[0])
    for length, (below, above) in zip(lengths[1:], pairwise(chosen[1:]), strict=True):
        gains = np.append(0.0, gain_distribution(reach))
        passed = renewals(gains[1:], length)
        size = np.convolve(passed, gains)
        size[:length] = 0
        seconds = float(passed.sum()) * a_round
        reach, a_round = _round(levels, below, above, size, seconds)
    tokens = float(reach.sum())
    return Prediction(a_round / tokens, tokens)


def _round(
    levels: Levels, below: int, above: int, size: NDArray[np.float64], seconds: float
) -> tuple[NDArray[np.float64], float]:
    """A round of level ``above`` on drafts of ``below`` with lengths distributed by ``size``, each drafted in ``seconds``.

    Returns float64[n], entry j: the probability that j or more tokens are drafted and accepted; and the seconds of the round.
    """
    there = np.cumsum(size[::-1])[::-1]
    verify = levels.levels[above].pass_seconds(np.arange(len(size)))
    return there / there[0] * levels.reach(below, above, len(size) - 1), seconds + float(size @ verify)
