"""Times single calls in turn, so that a slow machine slows all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from suffolk.benchmarks.turns import rotated

Call = Callable[[Any], object]


def time_rounds(calls: Mapping[str, Call], questions: Sequence[Any], rounds: int, seed: int) -> dict[str, list[float]]:
    """Measure seconds of each call for each query, ``rounds`` times, after one warm-up round.

    In a round, a call gets all queries in one random order before the next call starts. So the processor's caches hold
    what the same call left there. The order of calls rotates.
    """
    chooser = np.random.default_rng(seed)
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        order = chooser.permutation(len(questions))
        for name in rotated(names, turn):
            times = [_time(calls[name], questions[place]) for place in order]
            if turn:
                seconds[name] += times
    return seconds


def time_alternating(
    calls: Mapping[str, Call], questions: Sequence[Any], rounds: int, seed: int
) -> dict[str, list[float]]:
    """Like ``time_rounds``, but each query goes to all calls before the next query starts.

    So the processor's caches hold what the other calls left there.
    """
    chooser = np.random.default_rng(seed)
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for counted in [False, *[True] * rounds]:
        for turn, place in enumerate(chooser.permutation(len(questions))):
            for name in rotated(names, turn):
                passed = _time(calls[name], questions[place])
                if counted:
                    seconds[name].append(passed)
    return seconds


def _time(call: Call, question: Any) -> float:
    begin = time.perf_counter()
    call(question)
    return time.perf_counter() - begin
