"""Joins steps, so that packet sizes do not reveal how many drafted tokens a step accepted."""

from __future__ import annotations

import time
from collections.abc import Callable

from suffolk.serving.decoding.engine.loop.step import Step


class StepJoiner:
    """Joins the steps of one stream that arrive within one interval. Not thread-safe.

    The first step, which always has one token, and the last one are sent at once. Packet sizes and times of an
    encrypted stream reveal the number of accepted tokens per step. From these numbers the topic of a text can be
    inferred (arXiv 2411.01076).
    """

    def __init__(self, interval: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``interval``: least seconds between two packets; 0 sends every step. ``clock``: seconds."""
        self._interval = interval
        self._clock = clock
        self._due = 0.0
        self._held: list[Step] = []

    def add(self, step: Step) -> Step | None:
        """Join ``step`` to the steps held back, and return one step. Returns None if ``step`` is held back too."""
        self._held.append(step)
        now = self._clock()
        if not step.finish and now < self._due:
            return None
        held, self._held, self._due = self._held, [], now + self._interval
        return held[0] if len(held) == 1 else _joined(held)


def _joined(steps: list[Step]) -> Step:
    return Step(
        tokens=tuple(token for step in steps for token in step.tokens),
        sources=tuple(source for step in steps for source in step.sources),
        pieces=tuple(piece for step in steps for piece in step.pieces),
        finish=steps[-1].finish,
        log_probabilities=tuple(each for step in steps for each in step.log_probabilities),
        traces=tuple(each for step in steps for each in step.traces),
    )
