"""Runs the recursions of several requests together. Queries to one level share a pass."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.hierarchy.draft_segment import LevelQuery, LevelReply
from suffolk.serving.decoding.drafters.hierarchy.model_level import ModelLevel
from suffolk.serving.decoding.drafters.hierarchy.recursion import LevelQueries, Recursion, StackedLevel, StackState
from suffolk.serving.decoding.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.decoding.engine.loop.draft_stats import DraftFailures

Waiting = tuple[StackState, LevelQueries, LevelQuery]
"""A request, its recursion, and the query that the recursion waits for."""


class LevelBatcher:
    """Makes the passes of all requests. The lowest level runs first, so that more queries share a pass. Not thread-safe."""

    def __init__(self, levels: Sequence[StackedLevel], recursion: Recursion, failures: DraftFailures) -> None:
        """``failures`` counts drafts that end at NaN logits."""
        self._levels, self._recursion, self._failures = levels, recursion, failures

    @torch.inference_mode()
    def draft(self, states: Sequence[StackState], most_seconds: float) -> None:
        """Set the ``segment`` of each of ``states``.

        Passes end when the next one would exceed ``most_seconds`` in sum. The tokens drafted so far are kept.
        """
        waiting: list[Waiting] = []
        for state in states:
            self._advance(waiting, state, self._recursion.draft(state), None)
        while waiting:
            at = min(query.level for _, _, query in waiting)
            group = [each for each in waiting if each[2].level == at]
            waiting = [each for each in waiting if each[2].level != at]
            most_seconds -= self._run_level(at, group, waiting, most_seconds)

    def _run_level(self, at: int, group: list[Waiting], waiting: list[Waiting], most: float) -> float:
        """Answer the queries of ``group`` with level ``at``, and add their next queries to ``waiting``.

        Returns the expected seconds of the pass; 0 if none was made.
        """
        level, begin = self._levels[at], time.perf_counter()
        slots, queries = [state.slot for state, _, _ in group], [query for _, _, query in group]
        requests = [state.request for state, _, _ in group]
        replies: Sequence[LevelReply] = [None] * len(group)
        seconds, rows = 0.0, 0
        if isinstance(level, RetrievalLevel):
            replies = level.answer(requests, queries)
        elif (expected := level.seconds_of(slots, requests, queries)) <= most:
            seconds, rows = expected, level.rows
            replies = level.answer(slots, requests, queries)
            rows = level.rows - rows
        for (state, recursion, _), reply in zip(group, replies, strict=True):
            self._advance(waiting, state, recursion, reply)
        if isinstance(level, ModelLevel) and rows:
            level.learn_cost(slots, rows, time.perf_counter() - begin)
        return seconds

    def _advance(self, waiting: list[Waiting], state: StackState, recursion: LevelQueries, reply: LevelReply) -> None:
        """Resume a recursion with ``reply``, None at its start, until its next query or its end."""
        try:
            waiting.append((state, recursion, recursion.send(reply)))
        except StopIteration as end:
            state.segment = end.value
            if state.is_cut:
                self._failures.add(InvalidArgument.__name__, "a level's logits are NaN")
