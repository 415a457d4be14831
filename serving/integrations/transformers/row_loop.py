"""A step loop whose requests are the rows of one ``generate`` call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.engine.loop.request import Request
from suffolk.serving.engine.loop.step_loop import StepLoop
from suffolk.serving.engine.sampling.settings import SamplingSettings
from suffolk.serving.integrations.transformers.prompts import PaddedPrompt


@dataclass(frozen=True, slots=True)
class RowStep:
    """The new tokens of one row.

    Attributes:
        row: number of the row.
        tokens: one or more.
        logits: float[k, vocab], the target's logits of the tokens; None if logits are not kept.
        last: whether the row has ended.
    """

    row: int
    tokens: tuple[int, ...]
    logits: torch.Tensor | None
    last: bool


class RowLoop:
    """Runs the rows of a call through ``loop``. Not thread-safe."""

    def __init__(self, loop: StepLoop, drafter: str, numbers: Iterator[int]) -> None:
        """``drafter``: name of the drafter; empty for none. ``numbers``: unused request numbers."""
        self._loop = loop
        self._drafter = drafter
        self._numbers = numbers
        self._rows: dict[int, Request] = {}

    def add(self, row: int, prompt: PaddedPrompt, settings: SamplingSettings, max_nodes: int, logits: bool) -> None:
        """Start ``row``.

        ``logits``: whether to keep its logits. Raises the errors of ``Request`` and ``StepLoop.join``.
        """
        request = Request(next(self._numbers), self._loop.target, prompt.tokens, settings, self._drafter, max_nodes)
        request.keep_logits = logits
        self._loop.join(request)
        self._rows[row] = request

    def step(self) -> list[RowStep]:
        """Run one pass over all running rows. Raises the error of a failed row."""
        rows = {request.number: row for row, request in self._rows.items()}
        steps = []
        for request, result in self._loop.step():
            if isinstance(result, SuffolkError):
                raise result
            steps.append(RowStep(rows[request.number], result.tokens, request.take_logits(), bool(result.finish)))
        return steps

    def leave(self, row: int) -> None:
        """End ``row``."""
        self._loop.leave(self._rows[row])

    def close(self) -> None:
        """End all rows."""
        for request in self._rows.values():
            self._loop.leave(request)
