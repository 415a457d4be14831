"""Tests the engine: many callers, a bounded queue, cancellation, asynchronous reading, and errors that end it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from suffolk.datastore.errors import InvalidArgument, ResourceExhausted, Unavailable
from suffolk.serving.decoding.drafters.load import make_drafter
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.costs.cost_store import FoundCosts
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.drafters import alone
from tests.support.gates import Gate
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
LONG = SamplingSettings(max_new_tokens=400)


@pytest.fixture
def engine(target: Target) -> Iterator[Engine]:
    drafters = {"prompt-lookup": PromptLookupDrafter(VOCAB)}
    with Engine(target, drafters, CostModel([1], [1.0]), slots=2, capacity=500, queue=3) as engine:
        yield engine


def test_a_target_shows_its_name_and_limits_and_not_its_layers(target: Target) -> None:
    assert len(repr(target)) < 200
    assert "vocab_size=" in repr(target)


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
    assert stats["batched_requests"] > stats["passes"]  # some passes served two


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
    running[0].cancel()  # a second time: nothing happens


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
            first.cancel()
            third = engine.generate(PROMPT, SamplingSettings(max_new_tokens=3))  # there is room before the pass ends
            gate.let()
            gate.wait()  # in the next pass the second request has the slot
            assert (first.stats.finish, first.stats.tokens) == ("cancelled", 2)
        assert len(list(second)) == len(list(third)) == 3


def test_a_generation_does_not_wait_for_its_reader(target: Target) -> None:
    settings = SamplingSettings(max_new_tokens=30)
    with Engine(target, slots=1, capacity=500, queue=1) as engine:
        unread, next_one = engine.generate(PROMPT, settings), engine.generate(PROMPT, settings)
        list(next_one)  # took the only slot after the first
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
        ({"drafter": 1}, InvalidArgument, "drafter is of type int; give the name"),
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
        {"costs": FoundCosts(CostModel([1], [1.0]), "measured")},
    ],
)  # fmt: skip
def test_options_that_cannot_be_are_refused(target: Target, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        Engine(target, **options)


@pytest.mark.parametrize("name", ["none", None, ""])
def test_no_drafter_by_a_name_is_plain_decoding(target: Target, name: str | None) -> None:
    """Regression: ``make_drafter("none", ...)`` returns None, which used to be taken for a drafter and failed at every step.

    None as the name used to be refused.
    """
    drafters = {"none": make_drafter("none", VOCAB), "mine": make_drafter(None, VOCAB)}
    with Engine(target, drafters, slots=1, capacity=100) as engine:
        assert engine.drafters == ()
        generation = engine.generate(PROMPT, SamplingSettings(9), name)
        assert [token for step in generation for token in step.tokens] == alone(target, PROMPT, SamplingSettings(9))


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


def test_engines_that_share_costs_correct_copies_of_them(target: Target) -> None:
    """Regression: an engine used to change its caller's costs, while another engine planned with them."""
    costs = CostModel([1], [1e-6])  # impossibly fast, so the running engine must correct it
    with (
        Engine(target, costs=costs, slots=1, capacity=500) as running,
        Engine(target, costs=costs, slots=1, capacity=500) as idle,
    ):
        list(running.generate(PROMPT, SamplingSettings(max_new_tokens=50)))
        assert running.stats()["running"] == 0
        assert running.slowdown > 100
        assert (idle.slowdown, costs.slowdown) == (1.0, 1.0)
        assert costs.time(1, 1, 0.0) == 1e-6
