"""Divides the time of a step by what the host does in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop

PARTS = ("scheduling", "loading", "drafting", "learning", "planning", "verification", "bookkeeping", "streaming")


class StepParts:
    """Adds the time of functions to ``PARTS``. The time of a watched function inside another counts for its own part alone.

    Attributes:
        seconds: by part.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._open: list[str] = []
        self._last = 0.0
        self.seconds = dict.fromkeys(PARTS, 0.0)

    def take(self) -> dict[str, float]:
        """The seconds of each part since the last call."""
        seconds, self.seconds = self.seconds, dict.fromkeys(PARTS, 0.0)
        return seconds

    def watch_loop(self, loop: StepLoop) -> None:
        """Divide the steps of ``loop``."""
        self._watch(loop, "bookkeeping", "step")
        self._watch(loop, "verification", "_verify")
        self._watch(loop._passes, "loading", "prepare", "forward", "step")
        self._watch(loop._batch, "scheduling", "take")
        self._watch(loop._pool, "drafting", "draft", "permitted", "prefetch")
        self._watch(loop._pool, "learning", "observe")
        if loop._planner is not None:
            self._watch(loop._planner, "planning", "may_draft", "draft_budget", "size_trees", "record")

    def watch_request(self, request: Request) -> None:
        """Divide the steps of ``request``."""
        self._watch(request._text, "streaming", "push", "finish")

    def _watch(self, owner: Any, part: str, *names: str) -> None:
        for name in names:
            setattr(owner, name, self._watched(getattr(owner, name), part))

    def _watched(self, function: Callable[..., Any], part: str) -> Callable[..., Any]:
        def timed(*args: Any, **more: Any) -> Any:
            self._lap()
            self._open.append(part)
            try:
                return function(*args, **more)
            finally:
                self._lap()
                self._open.pop()

        return timed

    def _lap(self) -> None:
        now = self._now()
        if self._open:
            self.seconds[self._open[-1]] += now - self._last
        self._last = now
