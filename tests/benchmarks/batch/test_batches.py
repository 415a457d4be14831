"""The batch benchmark starts a request only after the engine has released the slot of the request before.

Regression: it used to start the next request as soon as the output of the last one was complete, which is earlier, in
the middle of a step. The engine then sometimes rejected the next request, because the queue has length 0.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from suffolk.benchmarks.batch.measure import run_batch
from suffolk.benchmarks.decode.options import PLAIN
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.tiny_models import tiny_model

SETTINGS = SamplingSettings(max_new_tokens=6)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """An engine with two slots that releases a slot long after its output is complete."""
    leave = StepLoop.leave

    def leave_late(loop: StepLoop, request: Request, finish: str = "cancelled") -> None:
        time.sleep(0.05)
        leave(loop, request, finish)

    monkeypatch.setattr(StepLoop, "leave", leave_late)
    with Engine(Target.wrap(tiny_model()), slots=2, capacity=50, queue=0) as engine:
        yield engine


def test_a_batch_waits_for_released_slots_not_for_complete_outputs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Generation.__next__

    def read_slowly(generation: Generation) -> Step:
        time.sleep(0.01)  # so that outputs complete while their steps are read
        return read(generation)

    monkeypatch.setattr(Generation, "__next__", read_slowly)
    texts = [[number, 1, 2, 3] for number in range(6)]
    run = run_batch(engine, texts, 2, PLAIN, SETTINGS, 1)
    assert [len(output) for output in run.outputs] == [6] * 6


def test_an_ended_generation_has_released_its_slot(engine: Engine) -> None:
    for number in range(3):
        pair = [engine.generate([number, place], SETTINGS) for place in range(2)]
        while not all(each.ended for each in pair):
            time.sleep(0.001)
        assert [len(list(each)) for each in pair] == [6, 6]  # steps can still be read after the end
