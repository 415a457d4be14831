"""Plans hierarchies by dynamic programming. A plan names the levels that draft, and the number of tokens of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from suffolk.datastore.checks import whole_within
from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.decoding.drafters.hierarchy.level import Level
from suffolk.serving.decoding.drafters.hierarchy.levels import Levels
from suffolk.serving.decoding.drafters.hierarchy.rounds import Floats, expected_rounds, gain_distribution, renewals

DEPTH = 15
"""The bound of draft lengths in "Fast Inference via Hierarchical Speculative Decoding", below called the paper."""


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
    """A round of level ``above`` on a draft of ``below``. ``size``: distribution of the draft's length; ``seconds``: its cost.

    Returns float64[n], entry j: the probability that at least j tokens are drafted and accepted; and the seconds of the round.
    """
    there = np.cumsum(size[::-1])[::-1]
    verify = levels.levels[above].pass_seconds(np.arange(len(size)))
    return there / there[0] * levels.reach(below, above, len(size) - 1), seconds + float(size @ verify)


MOST_DEPTH = 256
_MOST_STATES = 4096


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Level numbers from the bottom to the target, draft lengths of all levels except the target, and seconds per token."""

    chosen: tuple[int, ...]
    lengths: tuple[int, ...]
    objective: float


def search(levels: Levels, depth: int) -> Iterator[Hierarchy]:
    """The best hierarchy of 1 level (the target alone), of 2 levels, and so on, while more levels can help. Thread-safe.

    The objective is seconds per token if each level drafts exactly its length. Let V_n(i, t) be the fewest seconds for t tokens of
    level i with n - 1 levels below it. The level drafts alone, or verifies rounds of l tokens of an earlier level k. Then level i
    needs gamma rounds (``rounds.expected_rounds``):

        V_1(i, t) = draft_i(t)
        V_n(i, t) = min over k < i, l of gamma(a_ki, l, t) (verify_i(l) + V_(n-1)(k, l))
        L_(n+1) = min over i, t of (verify_target(t) + V_n(i, t)) / E[tokens that the target gains of t drafted by i]

    V(k, l) does not depend on the levels above. So one more level takes O(K^2 T^2) for K levels and depth T. The search ends once
    V_n is nowhere below the least of V_1 .. V_(n-1). L_(n+1) is still returned, because the exact prediction may prefer it. A level
    may have a smaller length than the level below it. Memory is 8 K^2 T^2 bytes.

    Args:
        depth: the bound of all lengths, 1..256, and at most 4096 / (number of levels - 1).

    Raises:
        InvalidArgument: ``depth`` is out of its range.

    Source: "Fast Inference via Hierarchical Speculative Decoding", section 3.
    """
    drafters = len(levels.levels) - 1
    whole_within("depth", depth, 1, MOST_DEPTH)
    if drafters * depth > _MOST_STATES:
        raise InvalidArgument(
            Field("depth"), f" is {depth}; for {drafters} drafters it must be at most {_MOST_STATES // drafters}"
        )
    yield Hierarchy((drafters,), (), float(levels.levels[-1].pass_seconds(0)))
    if not drafters:
        return
    lengths = np.arange(1, depth + 1)  # numbers of drafted tokens
    verify = np.array([_verify_seconds(levels.levels[:-1], each, depth) for each in levels.levels])
    seconds = np.array([each.draft_seconds(lengths) for each in levels.levels[:-1]])
    rounds, passes = _tables(levels, depth)
    least = np.full(seconds.shape, np.inf)
    choices: list[NDArray[np.int64]] = []
    while np.isfinite(seconds).any():
        objective = passes * (verify[-1] + seconds)
        state = int(objective.argmin())
        if np.isfinite(objective.flat[state]):
            chosen, drafted = _trace(state, choices, depth)
            yield Hierarchy((*chosen, drafters), drafted, float(objective.flat[state]))
        if np.all(seconds >= least):
            return
        least = np.minimum(seconds, least)
        seconds, choice = _further(seconds, verify, rounds)
        choices.append(choice)


def _verify_seconds(drafters: Sequence[Level], verifier: Level, depth: int) -> Floats:
    """float64[drafters, depth], seconds of a pass of ``verifier`` over a draft of 1..depth tokens; infinite for retrieval."""
    passes = verifier.pass_seconds(np.arange(depth + 1))
    seconds = np.tile(passes[1:], (len(drafters), 1))
    if verifier.retrieval:
        seconds[:] = np.inf
        return seconds
    for place, drafter in enumerate(drafters):
        if drafter.found is not None:  # a further token costs its share times the probability that it is found
            seconds[place] = passes[0] + np.cumsum(drafter.availability(depth)[1:] * np.diff(passes))
    return seconds


def _further(below: Floats, verify: Floats, rounds: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """V for one more level than in ``below``, and the best (k, l) of each (i, t), encoded as k * T + l - 1."""
    seconds, choice = np.full(below.shape, np.inf), np.zeros(below.shape, np.int64)
    for verifier in range(1, len(below)):
        ways = rounds[:, verifier, :verifier] * (verify[verifier, :verifier] + below[:verifier])
        ways = ways.reshape(len(ways), -1)
        choice[verifier] = ways.argmin(axis=1)
        seconds[verifier] = np.take_along_axis(ways, choice[verifier][:, None], axis=1)[:, 0]
    return seconds, choice


def _trace(state: int, choices: list[NDArray[np.int64]], depth: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Levels and lengths from the bottom up to ``state``. The last of ``choices`` was made for ``state``."""
    path = [state]
    for choice in reversed(choices):
        path.append(int(choice.flat[path[-1]]))
    return tuple(each // depth for each in reversed(path)), tuple(each % depth + 1 for each in reversed(path))


def _tables(levels: Levels, depth: int) -> tuple[Floats, Floats]:
    """Expected rounds, shape (t, verifier, drafter, l), and passes of the target per token, shape (drafter, t).

    Infinite for pairs of unknown acceptance.
    """
    rates = levels.rates()
    known = np.isfinite(rates)
    rates[~known] = 0
    within, drafts = rates[:-1, :-1].T, range(1, depth + 1)
    rounds = np.stack([expected_rounds(within, drafted, depth) for drafted in drafts], axis=-1)
    rounds[:, ~known[:-1, :-1].T] = np.inf
    passes = 1 / np.cumsum(rates[:-1, -1:] ** np.arange(depth + 1), axis=1)[:, 1:]
    passes[~known[:-1, -1]] = np.inf
    for (drafter, verifier), reach in _reaches(levels, depth).items():
        if verifier == len(levels.levels) - 1:
            passes[drafter] = 1 / np.cumsum(reach)[1:]
        else:
            within_draft = np.tril(np.broadcast_to(reach, (depth, depth + 1)), 1)  # row l - 1: a draft of l tokens
            rounds[:, verifier, drafter] = np.cumsum(renewals(gain_distribution(within_draft), depth), axis=-1).T
    return rounds, passes


def _reaches(levels: Levels, depth: int) -> dict[tuple[int, int], Floats]:
    """``Levels.reach`` by (drafter, verifier), for pairs with a run distribution, or if the drafter may find fewer
    tokens than requested."""
    names = levels.names
    found = {(names.index(run.drafter), names.index(run.verifier)): run.reach(depth) for run in levels.runs}
    for drafter, level in enumerate(levels.levels):
        if level.found is not None:
            for verifier in range(drafter + 1, len(names)):
                reach = levels.reach(drafter, verifier, depth)
                if np.isfinite(reach[-1]):
                    found[drafter, verifier] = reach
    return found
