"""Decodes one text by several methods in turn, piece by piece."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from suffolk.benchmarks.decode.piece import Piece
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings


class Way:
    """A decoding method with its own step loop, so it stops between steps without effect on others. Not thread-safe.

    Attributes:
        name: name of the method.
        loop: its step loop of one slot. Cache, planner and costs are its own.
        drafter: its drafter; None for plain decoding.
    """

    def __init__(
        self, name: str, target: Target, drafter: Drafter | None, costs: CostModel, capacity: int, max_nodes: int
    ) -> None:
        """``drafter``: None for plain decoding. It stays open. ``capacity``, ``max_nodes``: as in ``Request``."""
        self.name = name
        self.loop = StepLoop(target, {} if drafter is None else {name: drafter}, costs, 1, capacity)
        self.drafter = drafter
        self._max_nodes = max_nodes
        self._texts = 0

    def begin(self, prompt: Sequence[int], settings: SamplingSettings) -> Request:
        """Read the prompt and generate the first token. Raises as ``StepLoop.join`` and ``run``."""
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
    """A text by one method. ``pieces``: its steps after the first token, by rising ``turn``."""

    request: Request
    pieces: list[Piece] = field(default_factory=list)


def decode_in_turns(
    ways: Sequence[Way], prompt: Sequence[int], settings: SamplingSettings, tokens: int, order: random.Random
) -> dict[str, DecodedText]:
    """Decode ``prompt`` by all ``ways`` and return the texts by name.

    In each round, every method generates up to the same position of the text: ``tokens`` after the last round's
    position. A method that is there already is left out. ``order`` shuffles the methods anew in each round.
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
