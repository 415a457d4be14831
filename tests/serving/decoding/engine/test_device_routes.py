"""Requests get the same steps whether the device or the host ends them, in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.engine.loop.drafter import GeneratedLogits
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.model import graph_pass, passes
from suffolk.serving.decoding.engine.model.device_step import (
    UNDECIDED,
    Drafts,
)
from suffolk.serving.decoding.engine.model.graph_pass import GraphPasses
from suffolk.serving.decoding.engine.model.kv_cache import KVCache
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.candidates import GUESS
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import MadeUpDrafter, alone, knowing
from tests.support.one_layer import assert_equal_texts, one_layer
from tests.support.tiny_models import VOCAB

PROMPT = [(7 * number) % VOCAB for number in range(12)]


TARGET = one_layer()


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes milliseconds for a row, and the check of passes for more."""
    monkeypatch.setattr(graph_pass, "ROWS", (2, 6, 10, 14, 18, 22, 26, 30))
    monkeypatch.setattr(graph_pass, "MOST_WANTED", 28)
    monkeypatch.setattr(passes, "_problem", lambda *_: None)


class Ways(GraphPasses):
    """Graph passes that nothing compiles. Each step ends where ``way(number)`` says: on the device or the host.

    Attributes:
        ended: requests and those of them that the device verified, of each step on the device.
    """

    way: Callable[[int], bool]

    def __init__(self, target: Target, cache: KVCache, layers: Any, **options: Any) -> None:
        super().__init__(target, cache, layers, **(options | {"is_compiled": False}))
        self._number = 0
        self.ended: list[tuple[int, int]] = []

    @property
    def has_steps(self) -> bool:
        self._number += 1
        return type(self).way(self._number)

    def step(self, slots: Any, layouts: Any, wanted: Any, drafts: Drafts) -> Any:
        read, walks = super().step(slots, layouts, wanted, drafts)
        self.ended.append((len(walks.tokens), sum(token != UNDECIDED for token in walks.tokens)))
        return read, walks


MIXED = [
    SamplingSettings(5),
    SamplingSettings(5, temperature=0.8, seed=3),
    SamplingSettings(5, temperature=1.2, top_k=9, top_p=0.8, min_p=0.02, seed=4),
    SamplingSettings(5, temperature=0.7, presence_penalty=0.5, seed=5),
    SamplingSettings(5, logprobs=2),
    SamplingSettings(5, prompt_logprobs=0),
    SamplingSettings(5, temperature=0.9, verification="typical", seed=6),
    SamplingSettings(5, stop_token_ids=(5, 17)),
]
DEVICE = 4
"""Requests of ``MIXED`` that the device may verify."""


class Learner(MadeUpDrafter):
    """Drafts nothing, and records the logits that it learns from."""

    reads_logits = True

    def __init__(self) -> None:
        super().__init__(lambda request: DraftTree.empty())
        self.learned: list[torch.Tensor] = []

    def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None:
        self.learned += [each.logits.clone() for each in generated]


def run(
    target: Target,
    monkeypatch: pytest.MonkeyPatch,
    way: Callable[[int], bool],
    settings: Sequence[SamplingSettings],
    learner: Learner | None = None,
) -> tuple[list[list[Step]], Ways, KVCache]:
    """Decode ``settings`` with random drafts that often hold the answer; some prompts are read beside other requests."""
    monkeypatch.setattr(Ways, "way", staticmethod(way), raising=False)
    monkeypatch.setattr(passes, "GraphPasses", Ways)
    rng, requests = np.random.default_rng(8), []
    drafters: dict[str, Any] = {}
    for number, each in enumerate(settings):
        answer = alone(target, PROMPT[: 4 + number], SamplingSettings(5, each.temperature, each.top_k, seed=each.seed))
        drafters[str(number)] = knowing(4 + number, answer, 2, rng, target.vocab_size)
        drafter = "" if number == 0 else str(number)
        keeps = learner is not None and number == 2
        requests.append(Request(number + 1, target, PROMPT[: 4 + number], each, drafter, 8, keep_logits=keeps))
    if learner is not None:
        drafters["1"] = learner
    loop = StepLoop(target, drafters, VerifyAllPlanner(), len(settings), 40, "graph")
    steps: dict[int, list[Step]] = {request.number: [] for request in requests}
    waiting = list(requests)
    while waiting or loop.running:
        for _ in range(4):  # join little by little
            if waiting:
                loop.join(waiting.pop(0))
        for request, step in loop.step():
            assert isinstance(step, Step), step
            steps[request.number].append(step)
    loop.cache.lengths[:] = [request.length - 1 for request in requests]
    special = loop.passes.special
    assert isinstance(special, Ways)
    return list(steps.values()), special, loop.cache


def test_requests_of_all_kinds_get_the_same_steps_either_way(few_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal tokens, sources, log-probabilities and accepted drafts in each step, and equal rows of the cache."""
    expected, host, cache = run(TARGET, monkeypatch, lambda number: False, MIXED)
    assert not host.ended
    found, device, other = run(TARGET, monkeypatch, lambda number: True, MIXED)
    mixed, _, third = run(TARGET, monkeypatch, lambda number: number % 3 != 0, MIXED)
    assert found == expected
    assert mixed == expected
    for each in (other, third):
        assert_equal_texts(each, cache)
    assert max(verified for _, verified in device.ended) == DEVICE
    assert max(requests for requests, _ in device.ended) == len(MIXED)
    assert sum(len(step.tokens) > 1 for steps in found[1:3] for step in steps) > 1


def test_logits_that_are_learned_or_kept_are_read_on_the_host(few_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for way in (False, True):
        learner = Learner()
        steps, special, _ = run(TARGET, monkeypatch, lambda number, way=way: way, [SamplingSettings(5)] * 3, learner)
        runs.append((steps, learner.learned, [step.logits for step in steps[2]]))
        assert {each for each in special.ended if each[0] == 3} == ({(3, 1)} if way else set())
    (expected, *logits), (found, *others) = runs
    assert found == expected
    for each, other in zip(logits, others, strict=True):
        assert len(each) >= 3
        assert all(map(torch.equal, each, other))


def test_a_flat_distribution_is_sampled_on_the_host(few_rows: None, monkeypatch: pytest.MonkeyPatch) -> None:
    target = one_layer(vocab_size=GUESS + 100)
    flat = [SamplingSettings(5, temperature=50.0, top_p=0.999, seed=1), SamplingSettings(5)]
    expected, _, _ = run(target, monkeypatch, lambda number: False, flat)
    found, device, _ = run(target, monkeypatch, lambda number: True, flat)
    assert found == expected
    assert {verified for requests, verified in device.ended if requests == 2} == {1}
