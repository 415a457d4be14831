"""Plans hierarchies by dynamic programming: which levels draft, and how many tokens each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from suffolk.serving.drafters.hierarchy.levels import Levels
from suffolk.serving.drafters.hierarchy.rounds import gain_distribution, renewals
from suffolk.serving.drafters.hierarchy.search import search

DEPTH = 15
"""The paper's bound of all draft lengths."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A hierarchy with its predicted speed.

    Attributes:
        names: of its levels, from the bottom to the target; the target alone is plain decoding.
        lengths: the least tokens that each level but the target drafts; one fewer than ``names``.
        seconds: expected seconds a token, surplus tokens included (``predict``).
        speedup: seconds a token of the target alone, divided by ``seconds``.
        tokens: expected tokens a pass of the target.
        objective: what the search minimised: seconds a token without surplus tokens, the paper's L(sigma, T).
    """

    names: tuple[str, ...]
    lengths: tuple[int, ...]
    seconds: float
    speedup: float
    tokens: float
    objective: float

    def __str__(self) -> str:
        drafting = [f"{name}:{length}" for name, length in zip(self.names, self.lengths, strict=False)]
        return " > ".join([*drafting, self.names[-1]])


def best_plan(levels: Levels, depth: int = DEPTH) -> Plan:
    """The fastest of ``plans_by_size``, perhaps plain decoding. Args, Raises: as ``plans_by_size``."""
    return fastest(plans_by_size(levels, depth))


def plans_by_size(levels: Levels, depth: int = DEPTH) -> list[Plan]:
    """The best plans by the objective of 1 level (the target alone), 2, 3, ... levels, as far as more can help. Thread-safe.

    Compare them by ``seconds``, not by the objective (``fastest``).

    Args:
        depth: bound of all lengths; 1..256, and at most 4096 / (levels but the target).

    Raises:
        InvalidArgument: ``depth`` is out of its range.

    Source: "Fast Inference via Hierarchical Speculative Decoding", section 3. For its example (table 1, costs in appendix B.3) the
    paper prints latencies of 33.00, 14.37, 10.89, 10.64, 10.63 and 10.61 for 1 to 6 models. The exact objective is 33, 14.366,
    11.211, 10.657, 10.635 and 10.617 (the last with five levels).
    """
    names, plain = levels.names, float(levels.levels[-1].pass_seconds(0))
    plans = []
    for found in search(levels, depth):
        prediction = predict(levels, found.chosen, found.lengths)
        plans.append(
            Plan(
                names=tuple(names[level] for level in found.chosen),
                lengths=found.lengths,
                seconds=prediction.seconds,
                speedup=plain / prediction.seconds,
                tokens=prediction.tokens,
                objective=found.objective,
            )
        )
    return plans


def fastest(plans: list[Plan]) -> Plan:
    """The plan with the fewest seconds; the first of several."""
    return min(plans, key=lambda plan: plan.seconds)


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
