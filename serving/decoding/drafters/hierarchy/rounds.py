"""Computes the expected number of rounds that a level needs, the gamma of hierarchical speculative decoding.

A round gains X tokens: the accepted tokens of its draft, and one more. If rounds are independent, the distribution of X gives the
expected number of rounds until ``needed`` tokens exist (renewal theory). All functions are thread-safe. Their arguments are not
checked: ``Levels`` and ``plan.search`` check them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def expected_rounds(acceptance: ArrayLike, drafted: int, needed: int) -> Floats:
    """gamma(acceptance, drafted, n) for all n = 1..needed: expected rounds until n tokens exist.

    Each drafted token is accepted independently with the same probability, up to the first rejection. Let a = acceptance and
    T = drafted. The generating function P of X has 1 - P(z) = (1 - z)(1 - (az)^(T+1)) / (1 - az). The generating function of
    gamma is z / ((1 - z)(1 - P(z))). So

        gamma(n) = 1 + (1 - a)(n - 1) + a^(T+1) gamma(n - T - 1),    gamma(n) = 0 for n <= 0.

    The only subtraction is 1 - a, so no digits cancel near a = 0 or 1.

    Args:
        acceptance: of any shape; each in 0..1.
        drafted, needed: tokens; 1 or more.

    Returns:
        float64 of shape (needed, *acceptance.shape); entry n - 1 is for n tokens.

    Source: "Fast Inference via Hierarchical Speculative Decoding", section 2.4. The paper estimates gamma by simulation.
    """
    rate = np.asarray(acceptance, np.float64)
    rounds = 1 + np.multiply.outer(np.arange(needed, dtype=np.float64), 1 - rate)
    all_accepted = rate ** (drafted + 1)
    for row in range(drafted + 1, needed):
        rounds[row] += all_accepted * rounds[row - drafted - 1]
    return rounds


def gain_distribution(reach: ArrayLike) -> Floats:
    """The distribution of X.

    Args:
        reach: shape (..., drafted + 1); entry j is the probability that at least j tokens are drafted and accepted.

    Returns:
        float64 of the same shape; entry k - 1 is P(X = k), k = 1..drafted + 1.
    """
    return -np.diff(np.asarray(reach, np.float64), axis=-1, append=0.0)


def renewals(gains: ArrayLike, needed: int) -> Floats:
    """The probability that some round ends with exactly n tokens, for n = 0..needed - 1.

    The sum of these probabilities is the expected number of rounds until ``needed`` tokens exist.

    Args:
        gains: shape (..., G); entry k - 1 is P(X = k), as from ``gain_distribution``.
        needed: tokens; 1 or more.

    Returns:
        float64 of shape (..., needed).
    """
    probs = np.asarray(gains, np.float64)
    chances = np.zeros((*probs.shape[:-1], needed))
    chances[..., 0] = 1
    for count in range(1, needed):
        longest = min(count, probs.shape[-1])
        before = chances[..., count - longest : count][..., ::-1]
        chances[..., count] = (probs[..., :longest] * before).sum(axis=-1)
    return chances
