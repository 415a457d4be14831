"""Plans hierarchies by brute force. It tries all subsets and lengths, with costs from the Markov chain of all buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product

import numpy as np
from hypothesis import strategies as st

from suffolk.serving.decoding.drafters.hierarchy.level import Level, RunDistribution
from suffolk.serving.decoding.drafters.hierarchy.levels import Levels
from suffolk.serving.decoding.drafters.hierarchy.plan import DEPTH, Plan, fastest, plans_by_size


def fastest_plan(levels: Levels, depth: int = DEPTH) -> Plan:
    """The plan that ``suffolk hierarchy plan`` recommends."""
    return fastest(plans_by_size(levels, depth))


def found(level: Level, asked: int) -> list[float]:
    """Return the probabilities that a level finds exactly 0, 1, ... of ``asked`` tokens. A model always finds all."""
    distribution = [*(level.found or [0.0] * asked + [1.0]), *[0.0] * asked]
    return [*distribution[:asked], sum(distribution[asked:])]


def accepted(levels: Levels, drafter: int, verifier: int, drafted: int) -> list[float] | None:
    """Return the probabilities that exactly 0, 1, ... of ``drafted`` tokens are accepted; None if unknown.

    For retrieval, ``drafted`` is the number of requested tokens.
    """
    for run in levels.runs:
        if (run.drafter, run.verifier) == (levels.names[drafter], levels.names[verifier]):
            distribution = [*run.probabilities, *[0.0] * drafted]
            return [*distribution[:drafted], sum(distribution[drafted:])]
    rate = levels.acceptance[drafter][verifier]
    if rate is None:
        return None
    distribution = [0.0] * (drafted + 1)
    for size, chance in enumerate(found(levels.levels[drafter], drafted)):
        for count in range(size + 1):
            distribution[count] += chance * rate**count * (1 - rate if count < size else 1)
    return distribution


def chain_rounds(gains: Sequence[float], needed: int) -> float:
    """Return the expected rounds until ``needed`` tokens exist, from an absorbing Markov chain.

    gains[k - 1] = P(X = k).
    """
    system = np.eye(needed)
    for have in range(needed):
        for more, chance in enumerate(gains, start=1):
            if have + more < needed:
                system[have, have + more] -= chance
    return float(np.linalg.solve(system, np.ones(needed))[0])


def pass_seconds(level: Level, drafted: int) -> float:
    costs = level.seconds if isinstance(level.seconds, tuple) else (level.seconds,)
    if drafted < len(costs) or len(costs) == 1:
        return costs[min(drafted, len(costs) - 1)]
    return costs[-1] + max(costs[-1] - costs[-2], 0) * (drafted - len(costs) + 1)


def verify_seconds(level: Level, drafter: Level, drafted: int) -> float:
    """Return the expected cost of a pass that verifies a draft of ``drafter``, over the number of found tokens."""
    return sum(chance * pass_seconds(level, size) for size, chance in enumerate(found(drafter, drafted)))


def draft_seconds(level: Level, tokens: int) -> float:
    return pass_seconds(level, 0) * (1 if level.retrieval else tokens)


def hierarchies(levels: Levels, depth: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield every subset that can be a hierarchy, with all lengths up to ``depth``."""
    target = len(levels.levels) - 1
    for size in range(target + 1):
        for drafters in combinations(range(target), size):
            chosen = (*drafters, target)
            known = all(accepted(levels, *pair, 1) for pair in zip(chosen, chosen[1:], strict=False))
            if known and not any(levels.levels[level].retrieval for level in chosen[1:]):
                yield from ((chosen, lengths) for lengths in product(range(1, depth + 1), repeat=size))


def objective(levels: Levels, chosen: Sequence[int], lengths: Sequence[int]) -> float:
    """Compute the latency of the paper (corollary 3.1). A level verifies drafts of at most ``lengths`` tokens."""
    if len(chosen) == 1:
        return pass_seconds(levels.levels[chosen[0]], 0)
    seconds = draft_seconds(levels.levels[chosen[0]], lengths[0])
    for place in range(1, len(chosen)):
        gains = accepted(levels, chosen[place - 1], chosen[place], lengths[place - 1])
        assert gains is not None
        seconds += verify_seconds(levels.levels[chosen[place]], levels.levels[chosen[place - 1]], lengths[place - 1])
        if place == len(chosen) - 1:
            return seconds / sum(count * chance for count, chance in enumerate(gains, start=1))
        seconds *= chain_rounds(gains, lengths[place])
    raise AssertionError("a hierarchy ends with its target")


def real_seconds(levels: Levels, chosen: Sequence[int], lengths: Sequence[int]) -> tuple[float, float]:
    """Return seconds a token and tokens per target pass of algorithm 1, from the Markov chain of all buffers.

    In each state the bottom level drafts once, and levels above run as far as buffers are full. After the target has
    verified, all buffers are empty. The result is expected seconds over expected tokens until then, from one linear
    system.
    """
    if len(chosen) == 1:
        return pass_seconds(levels.levels[chosen[0]], 0), 1.0
    empty = (0,) * (len(chosen) - 2)
    states, moves = [empty], []
    for state in states:  # grows during the loop
        seconds, tokens = draft_seconds(levels.levels[chosen[0]], lengths[0]), 0.0
        onward: dict[tuple[int, ...], float] = {}
        waiting = [(1, lengths[0], state, 1.0)]
        while waiting:
            place, drafted, buffers, chance = waiting.pop()
            verifier, drafter = levels.levels[chosen[place]], levels.levels[chosen[place - 1]]
            seconds += chance * verify_seconds(verifier, drafter, drafted)
            distribution = accepted(levels, chosen[place - 1], chosen[place], drafted)
            assert distribution is not None
            for count, probability in enumerate(distribution, start=1):
                if place == len(chosen) - 1:
                    tokens += chance * probability * count
                    continue
                have = buffers[place - 1] + count
                full = have >= lengths[place]
                after = (*buffers[: place - 1], 0 if full else have, *buffers[place:])
                if full:
                    waiting.append((place + 1, have, after, chance * probability))
                else:
                    onward[after] = onward.get(after, 0.0) + chance * probability
        states.extend(after for after in onward if after not in states)
        moves.append((seconds, tokens, onward))
    system = np.eye(len(states))
    for row, (_, _, onward) in enumerate(moves):
        for after, chance in onward.items():
            system[row, states.index(after)] -= chance
    solved = np.linalg.solve(system, np.array([(seconds, tokens) for seconds, tokens, _ in moves]))
    return float(solved[0, 0] / solved[0, 1]), float(solved[0, 1])


@st.composite
def some_levels(draw: st.DrawFn, most: int = 4) -> Levels:
    """Make random levels, at most ``most``.

    Some rates are 0, 1 or unknown. Costs depend on the draft's length. Retrieval has distributions of runs and matches.
    """
    count = draw(st.integers(1, most))
    seconds = st.floats(0.01, 10)
    costs = st.one_of(seconds, st.lists(seconds, min_size=1, max_size=6).map(tuple))
    searched = draw(st.lists(st.booleans(), min_size=count - 1, max_size=count - 1))
    weights = st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(any)
    distributions = weights.map(lambda each: tuple(weight / sum(each) for weight in each))
    levels = [
        Level(f"retrieval {at}", draw(st.floats(0, 5)), retrieval=True, found=draw(st.none() | distributions))
        if is_searched
        else Level(f"model {at}", draw(costs))
        for at, is_searched in enumerate(searched)
    ]
    levels.append(Level("target", draw(costs)))
    rates = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, None]))
    acceptance = tuple(
        tuple(draw(rates) if drafter < verifier else None for verifier in range(count)) for drafter in range(count)
    )
    runs = []
    for drafter, verifier in combinations(range(count), 2):
        if levels[drafter].retrieval and draw(st.booleans()):
            runs.append(RunDistribution(levels[drafter].name, levels[verifier].name, draw(distributions)))
    return Levels(tuple(levels), acceptance, tuple(runs))
