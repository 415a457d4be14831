"""Plans hierarchies by dynamic programming. A plan names the levels that draft, and the number of tokens of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from suffolk.serving.decoding.drafters.hierarchy.levels import Levels
from suffolk.serving.decoding.drafters.hierarchy.rounds import gain_distribution, renewals
from suffolk.serving.decoding.drafters.hierarchy.search import search

DEPTH = 15
"""The paper's bound of draft lengths."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A hierarchy with its predicted speed.

    Attributes:
        names: the names of its levels, from the bottom to the target. The target alone is plain decoding.
        lengths: the least tokens that each level except the target drafts.
        seconds: expected seconds per token, with surplus tokens (``predict``).
        speedup: the target's seconds per token in plain decoding, divided by ``seconds``.
        tokens: expected tokens per pass of the target.
        objective: the search's objective: seconds per token without surplus tokens, the paper's L(sigma, T).
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


def plans_by_size(levels: Levels, depth: int = DEPTH) -> list[Plan]:
    """The plans of ``search``, by number of levels, with predicted speeds. Thread-safe. Args, Raises: as ``search``.

    Compare plans by ``seconds``, not by the objective (``fastest``).

    Source: "Fast Inference via Hierarchical Speculative Decoding", section 3. ``docs/design/hierarchy.md`` compares the paper's
    example.
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
    """The plan with the fewest seconds per token. It may be plain decoding."""
    return min(plans, key=lambda plan: plan.seconds)


@dataclass(frozen=True, slots=True)
class Prediction:
    """Expected ``seconds`` per token, and ``tokens`` per pass of the target."""

    seconds: float
    tokens: float


def predict(levels: Levels, chosen: Sequence[int], lengths: Sequence[int]) -> Prediction:
    """The exact expectation for algorithm 1 of the paper, with independent acceptances. Thread-safe.

    A level stops when it has its length. Its last round may gain surplus tokens. The paper's theorem 2.2 ignores these tokens,
    and is 4 to 5 % too pessimistic for the paper's example. Here the distribution of the draft length is carried from level to
    level.

    A round gains more than j tokens if at least j are drafted and the first j are accepted. ``renewals`` gives the expected rounds
    of a call, and the distribution of its tokens. By Wald's equation, a call costs its expected rounds times the cost of a round.

    Takes O(length * sum of lengths) a level.

    Args (not checked):
        chosen: one or more numbers of levels, rising, the target last.
        lengths: the least tokens that each of ``chosen`` except the target drafts, 1 or more.

    Source: "Fast Inference via Hierarchical Speculative Decoding", algorithm 1 and section 2.4. Surplus tokens are ours.
    """
    target = levels.levels[-1]
    if len(chosen) == 1:
        return Prediction(float(target.pass_seconds(0)), 1.0)
    bottom = levels.levels[chosen[0]]
    size = bottom.draft_lengths(lengths[0])  # the distribution of the draft length of the level below
    seconds = float(bottom.draft_seconds(lengths[0]))
    reach, a_round = _round(levels, chosen[0], chosen[1], size, seconds)
    if bottom.found is not None:  # the pair's runs include drafts that found nothing
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
    """A round of level ``above`` on a draft of ``below``, whose length has the distribution ``size``, drafted in ``seconds``.

    Returns float64[n], entry j: the probability that at least j tokens are drafted and accepted; and the seconds of the round.
    """
    there = np.cumsum(size[::-1])[::-1]
    verify = levels.levels[above].pass_seconds(np.arange(len(size)))
    return there / there[0] * levels.reach(below, above, len(size) - 1), seconds + float(size @ verify)
