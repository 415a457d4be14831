"""Sends requests over several streams at once, and times each answer. Loads no torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamedAnswer:
    """One answer.

    Attributes:
        text: the whole text.
        tokens: number of tokens in the text.
        first: seconds from the request to its first token; None if the answer came in one piece.
        seconds: seconds from the request to the end of its answer.
    """

    text: str
    tokens: int
    first: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class StreamRun:
    """The answers to all requests in order, and the seconds from the first request to the last answer."""

    answers: list[StreamedAnswer]
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens per second of all streams together."""
        return sum(each.tokens for each in self.answers) / self.seconds


Ask = Callable[[Sequence[int]], StreamedAnswer]
"""Sends one prompt of token ids and reads the whole answer. Called from several threads."""


def run_streams(ask: Ask, prompts: Sequence[Sequence[int]], streams: int) -> StreamRun:
    """Send all ``prompts``, ``streams`` at a time; when an answer ends, its stream sends the next request."""
    with ThreadPoolExecutor(streams) as pool:
        begin = time.perf_counter()
        answers = list(pool.map(ask, prompts))
        return StreamRun(answers, time.perf_counter() - begin)


class Stopwatch:
    """Times one answer."""

    def __init__(self) -> None:
        self._begin = time.perf_counter()
        self._first: float | None = None

    def token(self) -> None:
        """Note that tokens have come."""
        if self._first is None:
            self._first = time.perf_counter() - self._begin

    def answer(self, text: str, tokens: int) -> StreamedAnswer:
        """The answer, which has ended."""
        return StreamedAnswer(text, tokens, self._first, time.perf_counter() - self._begin)
