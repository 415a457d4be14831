"""Runs the parts of a measurement in turn, and keeps the finished ones on Ctrl-C.

The parts are ordered so that a slow moment of the machine affects all methods and groups alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, TypedDict, TypeVar

import numpy as np

from suffolk.build_index.progress import part_progress

T = TypeVar("T")
Call = Callable[[Any], object]


class Stop(TypedDict):
    """The point where a measurement stopped: after ``done`` of ``of`` parts, named by ``unit``."""

    done: int
    of: int
    unit: str


def keep(parts: Iterable[T], of: int, unit: str, shown: bool = True) -> tuple[list[T], Stop | None]:
    """Collect the items of ``parts`` up to Ctrl-C, and show the progress. An unfinished item is left out.

    Args:
        of: total number of parts.
        unit: name of the parts, in the plural.
        shown: whether to show the progress. Of two nested calls, only one shows it.

    Returns:
        The finished items, and the point where the parts stopped; None if all are done.

    Raises:
        KeyboardInterrupt: Ctrl-C came before the first part was finished, or a second time.
    """
    done: list[T] = []
    try:
        with part_progress(of, unit) if shown else nullcontext(lambda number: None) as show:
            for part in parts:
                done.append(part)
                show(len(done))  # counts only parts that are kept
    except KeyboardInterrupt:
        if not done:
            raise KeyboardInterrupt(f"before the first of {of:,} {unit} was finished") from None
        return done, Stop(done=len(done), of=of, unit=unit)
    return done, None


def stop_lines(stop: Stop | None) -> list[str]:
    """Return one line if the measurement stopped early, else none."""
    return [] if stop is None else [f"stopped after {stop['done']:,} of {stop['of']:,} {stop['unit']}"]


def exit_code(stop: Stop | None) -> int:
    """Return the exit code of a command that reported the kept parts."""
    return 0 if stop is None else 130


def rotated(items: Sequence[T], turn: int) -> list[T]:
    """``items`` in the order of a turn: each turn begins with the next item."""
    first = turn % len(items)
    return [*items[first:], *items[:first]]


def time_rounds(
    calls: Mapping[str, Call], questions: Sequence[Any], rounds: int, seed: int, alternating: bool = False
) -> dict[str, list[float]]:
    """Measure seconds of each call for each query, ``rounds`` times, after one warm-up round.

    In a round, a call gets all queries in one random order before the next call starts. So the processor's caches hold data of
    this call. The order of calls rotates.

    ``alternating``: whether each query goes to all calls before the next query starts. Then the processor's caches hold data of
    the other calls.
    """
    chooser = np.random.default_rng(seed)
    names = list(calls)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        order = chooser.permutation(len(questions))
        if alternating:
            pairs = [(name, place) for at, place in enumerate(order) for name in rotated(names, at)]
        else:
            pairs = [(name, place) for name in rotated(names, turn) for place in order]
        for name, place in pairs:
            call, question = calls[name], questions[place]
            begin = time.perf_counter()
            call(question)
            passed = time.perf_counter() - begin
            if turn:
                seconds[name].append(passed)
    return seconds
