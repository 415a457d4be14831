"""Tests decoding by several methods in turn, piece by piece."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest

from suffolk.benchmarks.decode.way import DecodedText, Way, decode_in_turns
from suffolk.datastore.errors import ResourceExhausted, SuffolkError
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [1, 2, 3, 4] * 6
NEW, STEP = 40, 6
SETTINGS = SamplingSettings(max_new_tokens=NEW, ignore_eos=True)
NAMES = ("plain", "lookup", "lookup, again")


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.wrap(tiny_model())


@pytest.fixture
def ways(target: Target) -> list[Way]:
    flat = CostModel([1, 64], [1.0, 1.0])
    drafters = [None, PromptLookupDrafter(VOCAB), PromptLookupDrafter(VOCAB)]
    return [Way(name, target, each, flat, 200, 8) for name, each in zip(NAMES, drafters, strict=True)]


def decode(ways: list[Way], seed: int = 0) -> dict[str, DecodedText]:
    return decode_in_turns(ways, PROMPT, SETTINGS, STEP, random.Random(seed))


def test_all_methods_give_the_same_text_in_pieces(ways: list[Way]) -> None:
    texts = decode(ways)
    plain = texts["plain"].request.generated
    assert len(plain) == NEW
    for text in texts.values():
        assert text.request.generated == plain
        assert text.request.stats.finish == "length"
        assert sum(piece.tokens for piece in text.pieces) == NEW - 1
        assert sum(piece.steps for piece in text.pieces) == text.request.stats.steps
        assert all(piece.seconds > 0 and piece.process_seconds > 0 and piece.steps > 0 for piece in text.pieces)
    assert [piece.tokens for piece in texts["plain"].pieces] == [STEP] * 6 + [3]
    assert texts["lookup"].request.stats.steps < NEW - 1


def test_pieces_of_a_round_end_at_the_same_position_of_the_text(ways: list[Way]) -> None:
    texts = decode(ways)
    for text in texts.values():
        *before, last = [0, *accumulate(piece.tokens for piece in text.pieces)]
        assert last == NEW - 1
        # a step with drafts may go on beyond the end of a piece; the next piece begins there
        assert all(end // STEP < next_end // STEP for end, next_end in zip(before, before[1:], strict=False))


def test_methods_take_turns_in_an_order_that_the_seed_decides(ways: list[Way]) -> None:
    def order(seed: int) -> list[str]:
        turns = {piece.turn: name for name, text in decode(ways, seed).items() for piece in text.pieces}
        assert sorted(turns) == list(range(len(turns)))
        return [turns[turn] for turn in sorted(turns)]

    found = [order(seed) for seed in range(4)]
    assert {tuple(sorted(each[:3])) for each in found} == {tuple(sorted(NAMES))}  # the first round
    assert len({tuple(each[:3]) for each in found}) > 1


def test_a_method_learns_from_its_own_steps_only(ways: list[Way]) -> None:
    decode(ways)
    loops = [way.loop for way in ways]
    assert [loop.stats.requests for loop in loops] == [1, 1, 1]
    assert loops[0].stats.draft_calls == 0 < loops[1].stats.draft_calls == loops[2].stats.draft_calls


def test_a_prompt_that_is_too_long_is_refused(ways: list[Way]) -> None:
    with pytest.raises(ResourceExhausted, match="a slot has 200"):
        decode_in_turns(ways, PROMPT * 10, SETTINGS, STEP, random.Random(0))


def test_the_error_of_a_step_ends_the_run(ways: list[Way]) -> None:
    def fail(texts: object, scores: object) -> object:
        raise ValueError("no scores")

    failing = SamplingSettings(max_new_tokens=NEW, processors=(fail,))
    with pytest.raises(SuffolkError, match="no scores"):
        ways[0].begin(PROMPT, failing)
