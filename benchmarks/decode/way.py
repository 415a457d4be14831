"""Decodes one text by several methods in turn, piece by piece, and compares the pieces to plain decoding's."""

from __future__ import annotations

import bisect
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

MOST_TOKENS = 16
"""Most tokens of a piece. A step with drafts may exceed this number."""
_LEAST_TOKENS = 2
_SECONDS = 0.5
"""Seconds that a piece of plain decoding may take. The speed of a shared machine hardly changes in this time."""
_RESAMPLES = 1000
_LEAST_PIECES = 8
"""Fewer pieces have no interval, because resampling them hardly varies."""

Sample: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive steps of one method.

    Attributes:
        turn: the piece's place among the pieces of all methods that decode the same text.
        tokens, steps: numbers of generated tokens and of steps, without the first token.
        seconds: time by the clock.
        process_seconds: processor time of this process, all threads included.
    """

    turn: int
    tokens: int
    steps: int
    seconds: float
    process_seconds: float


@dataclass(frozen=True, slots=True)
class BesidePlain:
    """A piece, compared to the pieces of plain decoding before and after it.

    Attributes:
        tokens: generated tokens.
        plain_tokens: tokens that plain decoding would have generated in the same time, at its speed before and after the piece.
        process_plain_tokens: tokens that it would have generated in the same processor time.
    """

    tokens: float
    plain_tokens: float
    process_plain_tokens: float


def piece_tokens(plain_seconds: float) -> int:
    """The tokens of a piece, for passes of ``plain_seconds``."""
    return max(_LEAST_TOKENS, min(MOST_TOKENS, round(_SECONDS / plain_seconds)))


def beside_plain(pieces: Sequence[Piece], plain: Sequence[Piece]) -> list[BesidePlain]:
    """Compare each piece of a method with the ``plain`` pieces between the method's previous and next piece of the same text.

    ``pieces`` and ``plain`` are in the order of their turns. A piece without plain pieces around it is left out.
    """
    turns, found = [each.turn for each in plain], []
    for at, piece in enumerate(pieces):
        begin = 0 if at == 0 else bisect.bisect(turns, pieces[at - 1].turn)
        end = len(plain) if at + 1 == len(pieces) else bisect.bisect(turns, pieces[at + 1].turn)
        around = plain[begin:end]
        tokens, seconds = sum(each.tokens for each in around), sum(each.seconds for each in around)
        process_seconds = sum(each.process_seconds for each in around)
        if piece.seconds and tokens and seconds and process_seconds:
            rate, process_rate = tokens / seconds, tokens / process_seconds
            found.append(BesidePlain(piece.tokens, piece.seconds * rate, piece.process_seconds * process_rate))
    return found


def ratios(texts: Sequence[Sequence[BesidePlain]], seed: int) -> dict[str, Any]:
    """Return the ratios of a method's speed to plain decoding's, with intervals.

    ``ratio`` is the median of the pieces' ratios. ``speed_up`` is the ratio of all tokens, and ``process_speed_up`` is this ratio
    by processor time. An interval holds 95 % of the results of resampling: random texts, and random pieces of each text, chosen
    with ``seed``. A value is None without pieces.
    """
    kept = [text for text in texts if text]
    values = np.array([(each.tokens, each.plain_tokens, each.process_plain_tokens) for text in kept for each in text])
    if not len(values):
        return {"count": 0} | dict.fromkeys(name for each in _RATIOS for name in (each, f"{each}_interval"))
    samples = _resampled(values, [len(text) for text in kept], seed) if len(values) >= _LEAST_PIECES else []
    found: dict[str, Any] = {"count": len(values)}
    for name, ratio in _RATIOS.items():
        found[name] = ratio(values)
        low_high = np.percentile([ratio(each) for each in samples], [2.5, 97.5]).tolist() if samples else None
        found[f"{name}_interval"] = low_high
    return found


def _resampled(values: Sample, counts: Sequence[int], seed: int) -> list[Sample]:
    """Return random samples of the rows ``values``. ``counts`` is the number of rows of each text."""
    generator = np.random.default_rng(seed)
    sizes = np.array(counts)
    begins = np.cumsum(sizes) - sizes
    samples = []
    for _ in range(_RESAMPLES):
        texts = generator.integers(len(sizes), size=len(sizes))
        own = np.repeat(sizes[texts], sizes[texts])
        samples.append(values[np.repeat(begins[texts], sizes[texts]) + generator.integers(own)])
    return samples


_RATIOS: dict[str, Callable[[Sample], float]] = {
    "ratio": lambda values: float(np.median(values[:, 0] / values[:, 1])),
    "speed_up": lambda values: float(values[:, 0].sum() / values[:, 1].sum()),
    "process_speed_up": lambda values: float(values[:, 0].sum() / values[:, 2].sum()),
}


class Way:
    """A decoding method with its own step loop. So it can pause between steps without effect on other methods. Not thread-safe.

    Attributes:
        name: name of the method.
        loop: its step loop of one slot, with its own cache, planner and costs.
        drafter: its drafter; None for plain decoding.
    """

    def __init__(
        self, name: str, target: Target, drafter: Drafter | None, costs: CostModel, capacity: int, max_nodes: int
    ) -> None:
        """``drafter``: None for plain decoding. The caller closes it. ``capacity``, ``max_nodes``: as in ``Request``."""
        self.name = name
        self.loop = StepLoop(target, {} if drafter is None else {name: drafter}, costs, 1, capacity)
        self.drafter = drafter
        self._max_nodes = max_nodes
        self._texts = 0

    def begin(self, prompt: Sequence[int], settings: SamplingSettings) -> Request:
        """Read the prompt and generate the first token. Raises the errors of ``StepLoop.join`` and ``run``."""
        self._texts += 1
        drafter = "" if self.drafter is None else self.name
        request = Request(self._texts, self.loop.target, prompt, settings, drafter, self._max_nodes)
        self.loop.join(request)
        while not request.stats.tokens:
            self._step()
        return request

    def run(self, request: Request, tokens: int, turn: int) -> Piece:
        """Decode until ``request`` has ``tokens`` tokens or ends. Raises the error of a step."""
        before, steps = request.stats.tokens, request.stats.steps
        process_begin, begin = time.process_time(), time.perf_counter()
        while request.stats.tokens < tokens and not request.stats.finish:
            self._step()
        seconds, process_seconds = time.perf_counter() - begin, time.process_time() - process_begin
        return Piece(turn, request.stats.tokens - before, request.stats.steps - steps, seconds, process_seconds)

    def _step(self) -> None:
        for _, result in self.loop.step():
            if isinstance(result, SuffolkError):
                raise result


@dataclass(frozen=True, slots=True)
class DecodedText:
    """A text that one method decoded. ``pieces``: the steps after the first token, by rising ``turn``."""

    request: Request
    pieces: list[Piece] = field(default_factory=list)


def decode_in_turns(
    ways: Sequence[Way], prompt: Sequence[int], settings: SamplingSettings, tokens: int, order: random.Random
) -> dict[str, DecodedText]:
    """Decode ``prompt`` by all ``ways`` and return the texts by name.

    In each round, every method generates up to the same position of the text, which is ``tokens`` after the last round's
    position. A method that has already reached this position is left out. ``order`` shuffles the methods anew in each round.
    """
    texts = {way.name: DecodedText(way.begin(prompt, settings)) for way in order.sample(ways, len(ways))}
    turn, end = 0, 1
    while running := [way for way in ways if not texts[way.name].request.stats.finish]:
        end += tokens
        for way in order.sample(running, len(running)):
            text = texts[way.name]
            if text.request.stats.tokens < end:
                text.pieces.append(way.run(text.request, end, turn))
                turn += 1
    return texts
