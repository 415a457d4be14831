"""What a hierarchy really costs: surplus tokens of a level are handed up, and the level above verifies them too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from suffolk.serving.drafters.hierarchy.levels import Levels
from suffolk.serving.drafters.hierarchy.rounds import gain_law, renewals


@dataclass(frozen=True, slots=True)
class Prediction:
    """What decoding costs in expectation: ``seconds`` a token, and ``tokens`` a pass of the target."""

    seconds: float
    tokens: float


def predict(levels: Levels, chosen: Sequence[int], lengths: Sequence[int]) -> Prediction:
    """The exact expectation for algorithm 1 of the paper, under its assumption of independent acceptances.

    A level hands up all that it has once it has its length, and that may be more, since its last round may gain several tokens. The
    paper's theorem 2.2 counts on the length alone and is too pessimistic (by 4 to 5 % for the best plans of its own example).
    Here the law of what is handed up is carried from level to level. A round gains more than j tokens if at least j were
    handed up and the first j of them are accepted. The chances that a call's rounds pass through each count below the length
    (``renewals``) give its expected rounds, and the law of the count that ends it. By Wald's equation a call costs its expected
    rounds times the cost of one, and a token costs what a round of the target costs, over the tokens that it gains.

    Takes O(length * sum of lengths) a level. Thread-safe.

    Args, which are not checked:
        chosen: numbers of levels, rising, the target last; one or more.
        lengths: tokens that each of ``chosen`` but the target hands up at least, in the same order; 1 or more.

    Source: "Fast Inference via Hierarchical Speculative Decoding", algorithm 1 and section 2.4; the law of surplus tokens is ours.
    """
    target = levels.levels[-1]
    if len(chosen) == 1:
        return Prediction(float(target.pass_seconds(0)), 1.0)
    bottom = levels.levels[chosen[0]]
    size = bottom.handed(lengths[0])  # the law of how many tokens the level below hands up
    seconds = float(bottom.draft_seconds(lengths[0]))
    reach, a_round = _round(levels, chosen[0], chosen[1], size, seconds)
    if bottom.found is not None:  # what is known of the pair tells already how often it is there
        reach = levels.reach(chosen[0], chosen[1], lengths[0])
    for length, (below, above) in zip(lengths[1:], pairwise(chosen[1:]), strict=True):
        gains = np.append(0.0, gain_law(reach))
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
    """A round of level ``above`` that is handed drafts of the law ``size`` by ``below``, for ``seconds`` each: the probability that
    at least j drafted tokens are there and accepted, j = 0.., and the seconds of the round."""
    there = np.cumsum(size[::-1])[::-1]
    verify = levels.levels[above].pass_seconds(np.arange(len(size)))
    return there / there[0] * levels.reach(below, above, len(size) - 1), seconds + float(size @ verify)
