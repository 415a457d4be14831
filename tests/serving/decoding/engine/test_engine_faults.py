"""Tests errors in drafters, users' functions, readers and the model: which requests fail, and which continue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Internal, InvalidArgument, Unavailable
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated, GeneratedLogits
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import MadeUpDrafter, alone, eager_decoder, eager_loop, tree
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
LONG = SamplingSettings(max_new_tokens=400)


def test_all_requests_of_a_dead_engine_get_its_error() -> None:
    target = Target.wrap(tiny_model())
    with Engine(target, slots=1, capacity=500) as engine:
        generations = [engine.generate(PROMPT, LONG) for _ in range(2)]
        next(generations[0])
        target.model.forward = broken
        for generation in generations:
            with pytest.raises(Exception, match="the device is gone"):
                list(generation)
            assert generation.stats.finish == "error"
        with pytest.raises(Unavailable, match="the engine has died .*the device is gone.*; start it again"):
            engine.generate(PROMPT, LONG)
        assert engine.death is not None


def broken(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("the device is gone")


def test_a_drafter_that_fails_in_every_way_costs_drafts_only(target: Target) -> None:
    class Failing(MadeUpDrafter):
        def observe(self, generated: Generated) -> None:
            raise KeyError(*generated)

        def release(self, request_id: int) -> None:
            raise ZeroDivisionError

    def fail(request: Any) -> DraftTree:
        raise RuntimeError("no draft")

    drafters = {"failing": Failing(fail), "forgetful": Failing(lambda request: DraftTree.empty())}
    with Engine(target, drafters, CostModel([1], [1.0]), slots=2, capacity=500) as engine:
        generations = {name: engine.generate(PROMPT, SamplingSettings(max_new_tokens=30), name) for name in drafters}
        for generation in generations.values():
            list(generation)
            assert generation.tokens == alone(target, PROMPT, SamplingSettings(max_new_tokens=30))
    assert generations["failing"].stats.draft_failures["RuntimeError"] > 0
    assert generations["forgetful"].stats.draft_failures["KeyError"] > 0


def test_a_drafter_that_prepares_is_told_what_is_verified_and_may_fail(target: Target) -> None:
    class Preparing(MadeUpDrafter):
        reported: ClassVar[list[tuple[int, list[int]]]] = []

        def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> None:
            self.reported += [
                (len(request.tokens), tree.tokens.tolist()) for request, tree in zip(requests, trees, strict=True)
            ]
            raise RuntimeError("not prepared")

    drafter = Preparing(lambda request: tree([1, 2], [-1, 0]) if len(request.tokens) % 2 else DraftTree.empty())
    loop = eager_loop(target, {"one": drafter})
    request = Request(1, target, PROMPT, SamplingSettings(max_new_tokens=20), "one")
    loop.join(request)
    while loop.running:
        loop.step()
    assert request.generated == alone(target, PROMPT, SamplingSettings(max_new_tokens=20))
    assert len(drafter.reported) == request.stats.draft_calls == request.stats.draft_failures["RuntimeError"] > 0
    assert {tuple(tokens) for size, tokens in drafter.reported if size < len(PROMPT) + 18} == {(), (1, 2)}
    assert all(bool(tokens) == bool(size % 2) for size, tokens in drafter.reported if size < len(PROMPT) + 18)


@pytest.mark.parametrize("call", ["propose", "prefetch", "learn_logits", "observe"])
def test_a_drafter_that_writes_to_the_text_is_at_fault(target: Target, call: str) -> None:
    """Regression: drafters used to receive the request's own array, so a drafter that modified it changed the answer."""

    class Writing(MadeUpDrafter):
        reads_logits = True

        def propose(self, requests: Sequence[DraftRequest]) -> list[DraftTree]:
            self.write("propose", requests[0].tokens)
            return super().propose(requests)

        def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> None:
            self.write("prefetch", requests[0].tokens)

        def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None:
            self.write("learn_logits", generated[0].tokens)

        def observe(self, generated: Generated) -> None:
            for tokens in generated.values():
                self.write("observe", tokens)

        def write(self, here: str, tokens: Any) -> None:
            if here == call:
                tokens[-1:] = (tokens[-1] + 1) % VOCAB

    settings = SamplingSettings(max_new_tokens=20)
    drafter = Writing(lambda request: tree([1, 2], [-1, 0]))
    run = eager_decoder(target, drafter).generate(PROMPT, settings)
    list(run)
    assert run.tokens == alone(target, PROMPT, settings)
    assert run.stats.draft_failures["ValueError"] > 5


def test_a_drafter_that_cannot_be_closed_leaves_no_other_open(target: Target, caplog: pytest.LogCaptureFixture) -> None:
    """Regression: the first error of a drafter used to end the shutdown, and the other drafters stayed open."""
    closed = []

    class Stuck(MadeUpDrafter):
        def close(self) -> None:
            closed.append(self)
            raise SystemExit("stuck")

    stuck = [Stuck(lambda request: DraftTree.empty()) for _ in range(2)]
    engine = Engine(target, {"one": stuck[0], "two": stuck[1]}, CostModel([1], [1.0]), slots=1, capacity=500)
    engine.close()
    engine.close()
    assert closed == stuck
    assert [record.getMessage() for record in caplog.records] == [
        f"drafter {name}: it could not be closed: SystemExit: stuck" for name in ("one", "two")
    ]


@pytest.mark.parametrize("own", [True, False])
def test_a_tree_that_is_written_to_while_it_is_verified_does_no_harm(target: Target, own: bool) -> None:
    """Regression: a drafter that reused the arrays of its last draft used to change the answer.

    Tokens that the pass had not read were accepted.
    """

    class Hasty(MadeUpDrafter):
        def prefetch(self, requests: Sequence[DraftRequest], trees: Sequence[DraftTree]) -> None:
            done = len(requests[0].tokens) - len(PROMPT)
            tokens = last.tokens if own else trees[0].tokens
            tokens[:2] = plain[done : done + len(tokens)][:2]

    def make(request: Any) -> DraftTree:
        last.tokens[:] = [1, 2]
        return last

    settings = SamplingSettings(max_new_tokens=20)
    plain, last = alone(target, PROMPT, settings), tree([1, 2], [-1, 0])
    run = eager_decoder(target, Hasty(make)).generate(PROMPT, settings)
    list(run)
    assert run.tokens == plain
    assert run.stats.accepted == 0


@pytest.mark.parametrize("fault", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()])
def test_exceptions_that_are_no_errors_cost_drafts_only(target: Target, fault: BaseException) -> None:
    """Regression: these exceptions used to end the engine's thread without an error, and all callers waited forever."""

    def give_up(request: Any) -> DraftTree:
        raise fault

    settings = SamplingSettings(max_new_tokens=20)
    with Engine(target, {"one": MadeUpDrafter(give_up)}, CostModel([1], [1.0]), slots=2, capacity=500) as engine:
        generation = engine.generate(PROMPT, settings, "one")
        list(generation)
        assert generation.tokens == alone(target, PROMPT, settings)
        assert generation.stats.draft_failures[type(fault).__name__] > 0


def test_whatever_ends_the_thread_is_told(target: Target) -> None:
    def interrupt(texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    with Engine(target, slots=1, capacity=500) as engine:
        generation = engine.generate(PROMPT, replace(LONG, processors=(interrupt,)))
        with pytest.raises(Internal, match="KeyboardInterrupt"):
            list(generation)
        assert engine.death is not None
        with pytest.raises(Unavailable, match="has died"):
            engine.generate(PROMPT)


def test_a_failure_is_counted_for_requests_without_a_draft(target: Target) -> None:
    """Regression: eight bad trees of one call used to be counted for each of eight requests, which gave 64."""

    class Counting(MadeUpDrafter):
        failed = 0

        def stats(self) -> dict[str, float]:
            return {"failed Corruption": self.failed}

    def draft(request: Any) -> DraftTree:
        if len(request.tokens) % 2:
            return tree([1], [-1])
        drafter.failed += 1
        return DraftTree.empty()

    drafter = Counting(draft)
    loop = eager_loop(target, {"one": drafter}, slots=2)
    requests = [
        Request(number, target, PROMPT[number:], SamplingSettings(max_new_tokens=9), "one") for number in (0, 1)
    ]
    for request in requests:
        loop.join(request)
    while loop.running:
        loop.step()
    assert drafter.failed > 0
    assert sum(request.stats.draft_failures["Corruption"] for request in requests) == drafter.failed


def test_an_event_loop_that_is_gone_harms_nobody(target: Target) -> None:
    """Regression: a reader that gave up left its event in a closed event loop. Setting this event used to kill the engine."""
    with Engine(target, slots=1, capacity=500) as engine:
        held, go = threading.Event(), threading.Event()

        def wait(texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            held.set()
            go.wait()
            return scores

        generation = engine.generate(PROMPT, SamplingSettings(max_new_tokens=5, processors=(wait,)))

        async def give_up() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(generation), 0.05)
            assert not generation._waiters

        assert held.wait(10)
        asyncio.run(give_up())
        closed = asyncio.new_event_loop()
        closed.close()
        generation._waiters.append((closed, asyncio.Event()))
        go.set()
        assert len([token for step in generation for token in step.tokens]) == 5
        assert engine.death is None


def test_a_request_whose_own_function_fails_ends_alone(target: Target) -> None:
    def fail(texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if texts.shape[1] == len(PROMPT) + 3:
            raise KeyError("grammar")
        return scores

    drafters = {"prompt-lookup": PromptLookupDrafter(VOCAB)}
    with Engine(target, drafters, CostModel([1], [1.0]), slots=2, capacity=500) as engine:
        failing = engine.generate(PROMPT, SamplingSettings(20, processors=(fail,)), "prompt-lookup")
        other = engine.generate(PROMPT, SamplingSettings(20))
        with pytest.raises(InvalidArgument, match="processors.*grammar"):
            list(failing)
        assert (len(failing.tokens), failing.stats.finish) == (3, "error")
        list(other)
        assert other.tokens == alone(target, PROMPT, SamplingSettings(20))
