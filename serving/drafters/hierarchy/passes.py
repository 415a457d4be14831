"""Runs the recursions of several requests together: what they need of one level is one pass."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.drafters.hierarchy.draft_segment import Answer, Ask
from suffolk.serving.drafters.hierarchy.draft_state import Text
from suffolk.serving.drafters.hierarchy.model_level import ModelLevel
from suffolk.serving.drafters.hierarchy.recursion import Asking, Recursion, StackedLevel
from suffolk.serving.drafters.hierarchy.retrieval_level import RetrievalLevel
from suffolk.serving.engine.loop.draft_failures import DraftFailures


class Passes:
    """Makes the passes that drafts need, the lowest level's first, so that those above wait for company. Not thread-safe."""

    def __init__(self, levels: Sequence[StackedLevel], recursion: Recursion, missed: DraftFailures) -> None:
        """``missed``: counts what a text's own fault takes from it."""
        self._levels, self._recursion, self._missed = levels, recursion, missed

    @torch.inference_mode()
    def draft(self, texts: Sequence[Text], most_seconds: float) -> None:
        """Set what each of ``texts`` hands to the target. A pass that should take more than is left of ``most_seconds`` is not
        made, and what there is by then is handed up."""
        waiting: list[tuple[Text, Asking, Ask]] = []
        for text in texts:
            self._go_on(waiting, text, self._recursion.draft(text), None)
        while waiting:
            at = min(ask.level for _, _, ask in waiting)
            group = [each for each in waiting if each[2].level == at]
            waiting = [each for each in waiting if each[2].level != at]
            most_seconds -= self._pass(at, group, waiting, most_seconds)

    def _pass(
        self, at: int, group: list[tuple[Text, Asking, Ask]], waiting: list[tuple[Text, Asking, Ask]], most: float
    ) -> float:
        """Let level ``at`` answer the ``group``, whose next asks join those that are ``waiting``; what that should take."""
        level, begin = self._levels[at], time.perf_counter()
        slots, asks = [text.slot for text, _, _ in group], [ask for _, _, ask in group]
        requests = [text.request for text, _, _ in group]
        answers: Sequence[Answer] = [None] * len(group)
        seconds, rows = 0.0, 0
        if isinstance(level, RetrievalLevel):
            answers = level.answer(requests, asks)
        elif (seconds := level.seconds_of(slots, requests, asks)) <= most:
            rows = level.rows
            answers = level.answer(slots, requests, asks)
            rows = level.rows - rows
        else:
            seconds = 0.0
        for (text, asking, _), answer in zip(group, answers, strict=True):
            self._go_on(waiting, text, asking, answer)
        if isinstance(level, ModelLevel) and rows:
            level.learn_cost(slots, rows, time.perf_counter() - begin)
        return seconds

    def _go_on(self, waiting: list[tuple[Text, Asking, Ask]], text: Text, asking: Asking, answer: Answer) -> None:
        """Let a recursion go on with ``answer``, None at its start, up to its next ask or its end."""
        try:
            waiting.append((text, asking, asking.send(answer)))
        except StopIteration as end:
            text.handed = end.value
            if text.is_cut:
                self._missed.add(InvalidArgument.__name__, "a level's logits are no numbers")
