"""The search for the best hierarchy: dynamic programming over which level hands up how many tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from datastore.errors import InvalidArgument
from serving.decoding.checks import whole_within
from serving.drafters.hierarchy.levels import Levels
from serving.drafters.hierarchy.rounds import Floats, expected_rounds, expected_rounds_of, gain_law

MOST_DEPTH = 256
_MOST_STATES = 4096


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Levels by number, from the bottom to the target, the length of each but the target, and the objective: seconds a token."""

    chosen: tuple[int, ...]
    lengths: tuple[int, ...]
    objective: float


def search(levels: Levels, depth: int) -> Iterator[Hierarchy]:
    """The best hierarchies of at most 1, 2, ... levels, each only if it is better than with fewer. The first is the target alone.

    The paper minimises seconds a token, where a level hands up its length and no more. Let V(i, t) be the fewest seconds for t
    tokens of level i. It drafts them alone, or verifies rounds of l tokens of a level k before it:

        V(i, t) = min(draft_i(t), min over k < i, l of gamma(a_ki, l, t) (verify_i(l) + V(k, l)))
        L = min over i, t of (verify_target(t) + V(i, t)) / E[tokens a pass of the target gains from t drafted by i]

    Costs multiply along a path from the outside in and it may end anywhere, so the best way to V(k, l) does not depend on what
    stands above it. With at most n levels V_n comes from V_(n-1), until a further level changes no V. One step is O(K^2 T^2) for
    K levels and depth T, where the paper reduces to generalised shortest paths, O(K^4 T^4 log KT). Unlike there, a level may have
    a smaller length than the one below it, which the paper's own table 10 has too. Memory is 8 K^2 T^2 bytes. Thread-safe.

    Args:
        depth: bound of all lengths; 1..256, and at most 4096 / (levels but the target).

    Raises:
        InvalidArgument: ``depth`` is out of its range.

    Source: "Fast Inference via Hierarchical Speculative Decoding", section 3.
    """
    drafters = len(levels.levels) - 1
    whole_within("depth", depth, 1, MOST_DEPTH)
    if drafters * depth > _MOST_STATES:
        most = _MOST_STATES // drafters
        raise InvalidArgument(f"depth is {depth}; for {drafters} drafters it must be at most {most}")
    best = Hierarchy((drafters,), (), float(levels.levels[-1].pass_seconds(0)))
    yield best
    if not drafters:
        return
    lengths = np.arange(1, depth + 1)
    verify = np.array([each.pass_seconds(lengths) + (np.inf if each.retrieval else 0) for each in levels.levels])
    seconds = alone = np.array([each.draft_seconds(lengths) for each in levels.levels[:-1]])
    rounds, passes = _tables(levels, depth)
    choices = [np.full(alone.shape, -1)]
    while True:
        per_token = passes * (verify[-1] + seconds)
        state = int(per_token.argmin())
        if per_token.flat[state] < best.objective:
            best = _trace(state, choices, float(per_token.flat[state]), drafters)
            yield best
        fewer = seconds
        seconds, choice = _further(fewer, alone, verify, rounds)
        if np.array_equal(seconds, fewer):
            return
        choices.append(choice)


def _further(fewer: Floats, alone: Floats, verify: Floats, rounds: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """V with one level more than ``fewer``, and below each (i, t) the state (k, l) = k * T + l - 1 that it verifies; -1: none."""
    seconds, choice = alone.copy(), np.full(alone.shape, -1)
    for verifier in range(1, len(alone)):
        each_round = verify[verifier] + fewer[:verifier]
        ways = (rounds[:, verifier, :verifier] * each_round).reshape(alone.shape[1], -1)
        way = ways.argmin(axis=1)
        cost = np.take_along_axis(ways, way[:, None], axis=1)[:, 0]
        pays = cost < alone[verifier]
        seconds[verifier][pays], choice[verifier][pays] = cost[pays], way[pays]
    return seconds, choice


def _tables(levels: Levels, depth: int) -> tuple[Floats, Floats]:
    """Expected rounds, shape (t, verifier, drafter, l), and passes of the target a token, shape (drafter, t); infinite where
    nothing is known of a pair, so that it never pays."""
    rates = levels.rates()
    known = np.isfinite(rates)
    rates[~known] = 0
    within, drafts = rates[:-1, :-1].T, range(1, depth + 1)
    rounds = np.stack([expected_rounds(within, drafted, depth) for drafted in drafts], axis=-1)
    rounds[:, ~known[:-1, :-1].T] = np.inf
    passes = 1 / np.cumsum(rates[:-1, -1:] ** np.arange(depth + 1), axis=1)[:, 1:]
    passes[~known[:-1, -1]] = np.inf
    names = levels.names
    for run in levels.runs:
        drafter, verifier = names.index(run.drafter), names.index(run.verifier)
        reach = run.reach(depth)
        if verifier == len(names) - 1:
            passes[drafter] = 1 / np.cumsum(reach)[1:]
        else:
            within_draft = np.tril(np.broadcast_to(reach, (depth, depth + 1)), 1)  # row l - 1: a draft of l tokens
            rounds[:, verifier, drafter] = expected_rounds_of(gain_law(within_draft), depth).T
    return rounds, passes


def _trace(state: int, choices: list[NDArray[np.int64]], objective: float, target: int) -> Hierarchy:
    """The hierarchy below the target that begins with ``state``; ``choices``: of V_1, V_2, ... up to where it was found."""
    depth = choices[0].shape[1]
    path = []
    for choice in reversed(choices):
        path.append(divmod(state, depth))
        state = int(choice.flat[state])
        if state < 0:
            break
    path.reverse()
    return Hierarchy((*(level for level, _ in path), target), tuple(length + 1 for _, length in path), objective)
