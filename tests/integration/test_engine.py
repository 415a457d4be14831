"""The engine: many callers, a bounded queue, cancellation, asynchronous reading, and an honest death."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from datastore.draft_tree import DraftTree
from datastore.errors import Internal, InvalidArgument, ResourceExhausted, Unavailable
from serving.decoding.cost_model import CostModel
from serving.decoding.cost_store import FoundCosts
from serving.decoding.drafter import SampledChain
from serving.decoding.engine import Engine
from serving.decoding.generation import Generation
from serving.decoding.request import Request
from serving.decoding.settings import SamplingSettings
from serving.decoding.target import Target
from serving.drafters.choose import make_drafter
from serving.drafters.prompt_lookup import PromptLookupDrafter
from tests.drafters import MadeUpDrafter, eager_decoder, eager_loop, knowing, tree
from tests.gates import Gate
from tests.tiny_models import VOCAB, tiny_model

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
LONG = SamplingSettings(max_new_tokens=400)


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.wrap(tiny_model())


@pytest.fixture
def engine(target: Target) -> Iterator[Engine]:
    drafters = {"prompt-lookup": PromptLookupDrafter(VOCAB)}
    with Engine(target, drafters, CostModel([1], [1.0]), slots=2, capacity=500, queue=3) as engine:
        yield engine


def alone(target: Target, prompt: list[int], settings: SamplingSettings) -> list[int]:
    run = eager_decoder(target, None).generate(prompt, settings)
    list(run)
    return run.tokens


def test_callers_in_many_threads_get_their_own_text(target: Target, engine: Engine) -> None:
    prompts = [[number, *PROMPT] for number in range(5)]
    settings = [SamplingSettings(max_new_tokens=20 + number, temperature=0.5 * (number % 3)) for number in range(5)]
    found: dict[int, list[int]] = {}

    def call(number: int) -> None:
        generation = engine.generate(prompts[number], settings[number], "prompt-lookup" if number % 2 else "")
        found[number] = [token for step in generation for token in step.tokens]

    threads = [threading.Thread(target=call, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: alone(target, prompts[number], settings[number]) for number in range(5)}
    stats = engine.stats()
    assert stats["requests"] == 5
    assert stats["tokens"] == sum(len(tokens) for tokens in found.values())
    assert stats["running"] == stats["waiting"] == 0
    assert stats["turns"] > stats["passes"]  # some passes served two


def test_asynchronous_readers_share_an_event_loop(target: Target, engine: Engine) -> None:
    async def read(number: int) -> list[int]:
        generation = engine.generate([number, *PROMPT], SamplingSettings(max_new_tokens=15))
        return [token async for step in generation for token in step.tokens]

    async def read_all() -> list[list[int]]:
        return await asyncio.gather(*(read(number) for number in range(4)))

    expected = [alone(target, [number, *PROMPT], SamplingSettings(max_new_tokens=15)) for number in range(4)]
    assert asyncio.run(read_all()) == expected


def test_a_full_queue_refuses_at_once_and_a_cancelled_request_makes_room(engine: Engine) -> None:
    running = [engine.generate(PROMPT, LONG) for _ in range(5)]  # two slots, three in the queue
    with pytest.raises(ResourceExhausted, match="5 requests run or wait; the slots hold 2 and the queue holds 3; try"):
        engine.generate(PROMPT, LONG)
    running[0].cancel()
    running[3].cancel()
    assert next(running[2]).tokens  # it has the slot now
    assert running[0].stats.finish == running[3].stats.finish == "cancelled"
    assert list(running[3]) == []  # never began
    engine.generate(PROMPT, LONG)
    running[0].cancel()  # again: nothing happens


def test_a_cancelled_request_gets_no_pass_more_and_a_full_queue_refuses_during_one() -> None:
    target = Target.wrap(tiny_model())
    with Engine(target, slots=1, capacity=500, queue=1) as engine:
        with Gate(target) as gate:
            first, second = engine.generate(PROMPT, LONG), engine.generate(PROMPT, SamplingSettings(max_new_tokens=3))
            gate.wait()
            gate.let()
            assert len(next(first).tokens) == 1
            gate.wait()  # in its second pass
            with pytest.raises(
                ResourceExhausted, match="2 requests run or wait; the slots hold 1 and the queue holds 1"
            ):
                engine.generate(PROMPT, LONG)
            first.cancel()
            gate.let()
            gate.wait()  # in the next pass the slot is the other's
            assert (first.stats.finish, first.stats.tokens) == ("cancelled", 2)
        assert len(list(second)) == 3


def test_a_generation_does_not_wait_for_its_reader(target: Target) -> None:
    settings = SamplingSettings(max_new_tokens=30)
    with Engine(target, slots=1, capacity=500, queue=1) as engine:
        unread, next_one = engine.generate(PROMPT, settings), engine.generate(PROMPT, settings)
        list(next_one)  # had the only slot after the first
        assert unread.stats.finish == "length"
        assert len(list(unread)) == 30
        assert unread.tokens == next_one.tokens == alone(target, PROMPT, settings)


def test_closing_ends_what_runs_and_refuses_what_comes(engine: Engine) -> None:
    generation = engine.generate(PROMPT, LONG)
    next(generation)
    engine.close()
    list(generation)
    assert generation.stats.finish == "cancelled"
    with pytest.raises(Unavailable, match="the engine is closed"):
        engine.generate(PROMPT, LONG)
    assert engine.death is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"prompt": []}, InvalidArgument, "the prompt is empty"),
        ({"prompt": [1.7, 2.2]}, InvalidArgument, "array of float64"),
        ({"prompt": "Hello"}, InvalidArgument, "was loaded without a tokenizer"),
        ({"settings": {"temperature": 1}}, InvalidArgument, "settings is of type dict; give SamplingSettings"),
        ({"max_nodes": "4"}, InvalidArgument, "max_nodes is '4', of type str"),
        ({"drafter": None}, InvalidArgument, "drafter is of type NoneType; give the name"),
        ({"drafter": "eagle"}, InvalidArgument, "drafter 'eagle' is not loaded; loaded: prompt-lookup"),
        ({"max_nodes": 0, "drafter": "prompt-lookup"}, InvalidArgument, "max_nodes is 0"),
        (
            {"settings": SamplingSettings(max_new_tokens=493)},
            ResourceExhausted,
            "needs 501 cache rows .* a slot has 500",
        ),
    ],
)
def test_what_cannot_run_is_refused_before_it_waits(
    engine: Engine, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        engine.generate(**({"prompt": PROMPT} | arguments))


@pytest.mark.parametrize(
    "options",
    [
        {"slots": 0}, {"slots": 2000}, {"slots": 2.5}, {"capacity": 1}, {"capacity": "9"}, {"queue": -1},
        {"drafters": [PromptLookupDrafter(VOCAB)]}, {"drafters": {"x": "prompt-lookup"}},
        {"costs": FoundCosts(CostModel([1], [1.0]), "measured", 0)},
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(target: Target, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        Engine(target, **options)


def test_no_drafter_by_a_name_is_plain_decoding(target: Target) -> None:
    """``make_drafter("none", ...)`` is None: it was taken for a drafter, which then failed at every step."""
    drafters = {"none": make_drafter("none", VOCAB), "mine": None}
    with Engine(target, drafters, slots=1, capacity=100) as engine:
        assert engine.drafters == ()
        generation = engine.generate(PROMPT, SamplingSettings(9), "none")
        assert [token for step in generation for token in step.tokens] == alone(target, PROMPT, SamplingSettings(9))


def test_an_engine_that_dies_tells_everybody() -> None:
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
        def observe(self, request_id: int, tokens: Any) -> None:
            raise KeyError(request_id)

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
    assert generations["failing"].stats.missed["RuntimeError"] > 0
    assert generations["forgetful"].stats.missed["KeyError"] > 0


@pytest.mark.parametrize("fault", [SystemExit(3), asyncio.CancelledError(), GeneratorExit()])
def test_exceptions_that_are_no_errors_cost_drafts_only(target: Target, fault: BaseException) -> None:
    """They once ended the engine's thread without a word, and everybody waited for ever."""

    def give_up(request: Any) -> DraftTree:
        raise fault

    settings = SamplingSettings(max_new_tokens=20)
    with Engine(target, {"one": MadeUpDrafter(give_up)}, CostModel([1], [1.0]), slots=2, capacity=500) as engine:
        generation = engine.generate(PROMPT, settings, "one")
        list(generation)
        assert generation.tokens == alone(target, PROMPT, settings)
        assert generation.stats.missed[type(fault).__name__] > 0


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


def test_a_miss_is_counted_for_those_who_missed_a_draft(target: Target) -> None:
    """Eight bad trees of one call were once counted for each of eight requests: 64."""

    class Counting(MadeUpDrafter):
        missed = 0

        def stats(self) -> dict[str, float]:
            return {"missed Corruption": self.missed}

    def draft(request: Any) -> DraftTree:
        if len(request.tokens) % 2:
            return tree([1], [-1])
        drafter.missed += 1
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
    assert drafter.missed > 0
    assert sum(request.stats.missed["Corruption"] for request in requests) == drafter.missed


def test_an_event_loop_that_is_gone_harms_nobody(target: Target) -> None:
    """A reader that gave up left its event behind, in a loop that closed: setting it killed the engine."""
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


def test_a_long_prompt_is_read_in_parts_while_others_go_on(target: Target) -> None:
    long = np.random.default_rng(0).integers(0, VOCAB, 480).tolist()
    model = tiny_model(max_position_embeddings=2048)
    wide = Target.wrap(model)
    prompt = long * 3
    with Engine(wide, slots=2, capacity=1600) as engine:
        first = engine.generate(PROMPT, SamplingSettings(max_new_tokens=60))
        steps = [next(first)]
        second = engine.generate(prompt, SamplingSettings(max_new_tokens=5))
        list(second)
        steps += list(first)
    assert [token for step in steps for token in step.tokens] == alone(
        wide, PROMPT, SamplingSettings(max_new_tokens=60)
    )
    assert second.tokens == alone(wide, prompt, SamplingSettings(max_new_tokens=5))


def test_generations_close_like_files(engine: Engine) -> None:
    generation: Generation = engine.generate(PROMPT, LONG)
    next(generation)
    generation.close()
    list(generation)
    assert generation.stats.finish == "cancelled"


def sampled(target: Target, law: SamplingSettings, rng: np.random.Generator, lie: float = 1.0) -> MadeUpDrafter:
    """Draws chains of 4 from a law near the target's own, and tells that law, multiplied by ``lie``."""
    vocab = target.vocab_size

    def make(request: Any) -> Any:
        text, rows = request.tokens.tolist(), []
        for _ in range(4):
            logits = target.prefill(text, target.new_cache(1, len(text)))[0] / max(law.temperature, 0.5)
            rows.append((logits + 0.3 * torch.from_numpy(rng.standard_normal(vocab))).softmax(-1))
            text.append(int(rng.choice(vocab, p=rows[-1].numpy())))
        return SampledChain(tree(text[-4:], [-1, 0, 1, 2]), torch.stack(rows) * lie)

    return MadeUpDrafter(make)


@pytest.mark.parametrize("law", [SamplingSettings(24), SamplingSettings(24, 1.0, top_p=0.9, seed=3)])
def test_rejection_accepts_chains_of_a_known_law(target: Target, law: SamplingSettings) -> None:
    """Greedy, the text is the plain one; sampled, it is another of the same law (tests/property/test_exact_law.py)."""
    law = replace(law, verification="rejection")
    run = eager_decoder(target, sampled(target, law, np.random.default_rng(0))).generate(PROMPT, law)
    list(run)
    assert run.stats.finish == "length"
    assert run.stats.accepted > 3
    assert run.stats.missed.total() == 0
    if law.temperature == 0:
        assert run.tokens == alone(target, PROMPT, SamplingSettings(24))


def test_a_law_that_is_none_costs_the_draft(target: Target) -> None:
    law = SamplingSettings(10, 1.0, verification="rejection")
    run = eager_decoder(target, sampled(target, law, np.random.default_rng(0), lie=2.0)).generate(PROMPT, law)
    list(run)
    assert len(run.tokens) == 10
    assert run.stats.accepted == 0
    assert run.stats.missed["InvalidArgument"] == run.stats.proposals > 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_typical_acceptance_takes_likely_tokens(target: Target, temperature: float) -> None:
    law = SamplingSettings(24, temperature, verification="typical", epsilon=0.01, delta=0.01)
    plain = alone(target, PROMPT, SamplingSettings(24))
    run = eager_decoder(target, knowing(len(PROMPT), plain, 5, np.random.default_rng(0), VOCAB)).generate(PROMPT, law)
    list(run)
    assert run.stats.accepted > 5
    assert (run.tokens == plain) == (temperature == 0)


def test_log_probabilities_are_those_of_the_plain_text(target: Target) -> None:
    law = SamplingSettings(12, logprobs=2)
    plain = eager_decoder(target, None).generate(PROMPT, law)
    expected = [each for step in plain for each in step.log_probabilities]
    drafted = eager_decoder(target, knowing(len(PROMPT), plain.tokens, 5, np.random.default_rng(0), VOCAB))
    found = [each for step in drafted.generate(PROMPT, law) for each in step.log_probabilities]
    assert [each.token for each in found] == [each.token for each in expected] == plain.tokens
    assert [each.value for each in found] == pytest.approx([each.value for each in expected])
    assert all(each.alternatives[0] == (each.token, each.value) for each in found)


def test_a_request_whose_own_function_fails_ends_alone(target: Target, engine: Engine) -> None:
    def fail(texts: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if texts.shape[1] == len(PROMPT) + 3:
            raise KeyError("grammar")
        return scores

    failing = engine.generate(PROMPT, SamplingSettings(20, processors=(fail,)), "prompt-lookup")
    other = engine.generate(PROMPT, SamplingSettings(20))
    with pytest.raises(InvalidArgument, match="processors.*grammar"):
        list(failing)
    assert (len(failing.tokens), failing.stats.finish) == (3, "error")
    list(other)
    assert other.tokens == alone(target, PROMPT, SamplingSettings(20))
