"""A prompt that begins like another text takes over its rows. Texts equal those without reuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.loop.draft_options import DraftOptions
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.slots import LEAST_REUSED, common_prefix
from suffolk.serving.decoding.engine.loop.step import Step
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from tests.support.tiny_models import VOCAB, tiny_model

SYSTEM = np.random.default_rng(0).integers(0, VOCAB, 40).tolist()
QUESTIONS = [np.random.default_rng(seed).integers(0, VOCAB, 12).tolist() for seed in range(1, 9)]
NEW = 10


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.wrap(tiny_model("llama"), name="tiny")


class Session:
    """A step loop, whose requests run to their ends."""

    def __init__(self, target: Target, slots: int = 4, reuse: bool = True, drafter: str = "prompt-lookup") -> None:
        drafters = {"prompt-lookup": PromptLookupDrafter(VOCAB)}
        self.loop = StepLoop(target, drafters, VerifyAllPlanner(), slots, 300, prefix_reuse=reuse)
        self._target, self._drafter, self._number = target, drafter, 0

    def request(self, prompt: Sequence[int], seed: int = 0, new: int = NEW, **options: Any) -> Request:
        self._number += 1
        settings = SamplingSettings(new, temperature=0.8 if seed else 0.0, seed=seed)
        return Request(self._number, self._target, list(prompt), settings, self._drafter, 16, DraftOptions(**options))

    def run(self, *requests: Request) -> list[list[int]]:
        """The texts of requests that join at once."""
        for each in requests:
            self.loop.join(each)
        while self.loop.running:
            for _, step in self.loop.step():
                assert isinstance(step, Step)
        return [each.generated for each in requests]

    def ask(self, prompt: Sequence[int], **more: Any) -> tuple[list[int], int]:
        """The text after ``prompt``, and the prompt's cached tokens."""
        request = self.request(prompt, **more)
        [text] = self.run(request)
        return text, request.stats.cached_tokens


def test_turns_of_a_chat_read_only_what_is_new(target: Target) -> None:
    session, plain = Session(target), Session(target, reuse=False)
    text = SYSTEM + QUESTIONS[0]
    for turn, question in enumerate(QUESTIONS[1:4]):
        answer, cached = session.ask(text)
        assert (answer, 0) == plain.ask(text)
        assert cached == (0 if turn == 0 else len(text) - len(question) - 1)  # the last token had not been read
        text = text + answer + question
    assert session.loop.stats.prompt_tokens + session.loop.stats.cached_tokens == plain.loop.stats.prompt_tokens


def test_a_shared_system_prompt_is_read_once(target: Target) -> None:
    session, plain = Session(target), Session(target, reuse=False)
    prompts = [SYSTEM + question for question in QUESTIONS[:4]]
    found = [session.ask(prompt) for prompt in prompts]
    assert [text for text, _ in found] == [plain.ask(prompt)[0] for prompt in prompts]
    assert [cached for _, cached in found] == [0, 40, 40, 40]


@pytest.mark.parametrize("drafter", ["", "prompt-lookup"])
def test_samples_of_one_prompt_read_it_once(target: Target, drafter: str) -> None:
    session, plain = (Session(target, 8, reuse, drafter) for reuse in (True, False))
    prompt = SYSTEM * 2
    texts, expected = (each.run(*(each.request(prompt, seed) for seed in range(1, 9))) for each in (session, plain))
    assert texts == expected
    assert len({tuple(text) for text in texts}) > 1
    assert session.loop.stats.prompt_tokens == len(prompt) + 7  # the others read its last token
    assert session.loop.stats.cached_tokens == 7 * (len(prompt) - 1)


def test_a_long_prompt_is_taken_over_while_it_is_read(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suffolk.serving.decoding.engine.loop.prefill_pace.PREFILL_CHUNK", 16)
    session, plain = Session(target), Session(target, reuse=False)
    first, second = (session.request(SYSTEM * 3 + question) for question in QUESTIONS[:2])
    assert session.run(first, second) == [plain.ask(SYSTEM * 3 + question)[0] for question in QUESTIONS[:2]]
    assert (first.stats.cached_tokens, second.stats.cached_tokens) == (0, 120)


def test_a_request_that_leaves_while_others_wait_gives_what_it_has(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suffolk.serving.decoding.engine.loop.prefill_pace.PREFILL_CHUNK", 16)
    session = Session(target)
    first, second = session.request(SYSTEM * 3), session.request(SYSTEM * 3 + QUESTIONS[0])
    session.loop.join(first)
    session.loop.join(second)
    session.loop.step()
    session.loop.leave(first)
    assert session.run() == []
    assert second.generated == Session(target, reuse=False).ask(SYSTEM * 3 + QUESTIONS[0])[0]
    assert second.stats.cached_tokens == 16


def test_tenants_and_texts_that_must_not_be_remembered_stay_apart(target: Target) -> None:
    session = Session(target)
    prompt = SYSTEM + QUESTIONS[0]
    assert session.ask(prompt, tenant="a")[1] == 0
    assert session.ask(prompt, tenant="b")[1] == 0
    assert session.ask(prompt, tenant="b")[1] == len(prompt) - 1
    private = QUESTIONS[1] * 3
    assert [session.ask(private, remember=False)[1] for _ in range(2)] == [0, 0]
    both = [session.request(private, tenant=name) for name in "ab"]
    session.run(*both)
    assert [each.stats.cached_tokens for each in both] == [0, 0]


def test_the_oldest_contents_go_first(target: Target) -> None:
    session = Session(target, slots=2)
    one, two, three = (question * 2 for question in QUESTIONS[:3])
    assert [session.ask(prompt)[1] for prompt in (one, two, one)] == [0, 0, 23]
    assert session.ask(three)[1] == 0  # in the place of two
    assert [session.ask(prompt)[1] for prompt in (one, two)] == [23, 0]


def test_a_copied_text_stays_for_others(target: Target) -> None:
    session = Session(target, slots=3)
    long = SYSTEM * 3
    session.ask(long)
    assert session.ask(SYSTEM + QUESTIONS[0])[1] == 40
    assert session.ask(long + QUESTIONS[1])[1] == len(long)


def test_whole_prompts_are_read_where_their_logits_are_wanted(target: Target) -> None:
    session = Session(target)
    session.ask(SYSTEM)
    settings = SamplingSettings(2, prompt_logprobs=0)
    request = Request(99, target, list(SYSTEM), settings)
    session.run(request)
    assert (request.stats.cached_tokens, len(request.prompt_log_probabilities)) == (0, len(SYSTEM) - 1)


def test_short_beginnings_are_not_taken_over(target: Target) -> None:
    session = Session(target)
    session.ask(SYSTEM)
    assert session.ask(SYSTEM[: LEAST_REUSED - 1] + QUESTIONS[0])[1] == 0
    assert session.ask(SYSTEM[:LEAST_REUSED] + QUESTIONS[0])[1] == LEAST_REUSED


@pytest.mark.parametrize(
    ("one", "other", "size"), [([], [], 0), ([1], [2], 0), ([1, 2], [1, 2, 3], 2), ([1, 2, 4], [1, 2, 3], 2)]
)
def test_common_prefix(one: list[int], other: list[int], size: int) -> None:
    assert common_prefix(np.array(one, np.int32), np.array(other, np.int32)) == size
