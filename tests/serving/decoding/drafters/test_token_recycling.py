"""Drafters get the target's logits row by row. After the same tokens, they draft the target's candidates again."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from suffolk.cli.main import main
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.decoding.drafters.calibration.calibration import Calibration
from suffolk.serving.decoding.drafters.drafter_config import DrafterConfig
from suffolk.serving.decoding.drafters.hybrid.drafter import HybridDrafter
from suffolk.serving.decoding.drafters.load import load_drafters, make_drafter
from suffolk.serving.decoding.drafters.registry import source_bits
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.drafters.retrieval.token_recycling import TokenRecyclingDrafter
from suffolk.serving.decoding.engine.costs.draft_budget import DraftCandidate
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest, Generated, GeneratedLogits
from suffolk.serving.decoding.engine.loop.generation import Generation
from suffolk.serving.decoding.engine.loop.request import Request
from suffolk.serving.decoding.engine.loop.step_loop import StepLoop
from suffolk.serving.decoding.engine.loop.verify_all_planner import VerifyAllPlanner
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.recorded_states import RecordedStates
from suffolk.serving.decoding.replay.recording import Recording
from suffolk.serving.decoding.replay.replayer import Replayer
from tests.support.drafters import Booked, MadeUpDrafter, alone, eager_decoder, eager_loop, tree
from tests.support.tiny_models import VOCAB, tiny_model

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
NAME = TokenRecyclingDrafter.name


class Learner(MadeUpDrafter):
    """Records its observations: the text, and the token of each row of logits."""

    reads_logits = True

    def __init__(self, make: Any) -> None:
        super().__init__(make)
        self.told: list[tuple[list[int], list[int]]] = []

    def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None:
        for each in generated:
            assert each.logits.shape[1] == VOCAB
            self.told.append((each.tokens.tolist(), each.logits.argmax(-1).tolist()))


@pytest.mark.parametrize("limit", [1, 7, 20])
def test_every_token_of_an_answer_is_told_with_what_it_was_drawn_from(limit: int) -> None:
    """Drafts are right for one to three tokens, in trees whose first nodes are wrong. The answer may end inside a draft."""
    target, settings = Target.wrap(tiny_model()), SamplingSettings(limit)
    expected = alone(target, PROMPT, settings)

    def make(request: DraftRequest) -> DraftTree:
        done = len(request.tokens) - len(PROMPT)
        ahead = expected[done : done + 1 + done % 3]
        wrong = (expected[min(done, limit - 1)] + 1) % VOCAB
        return tree([wrong, *ahead], [-1, -1, *range(1, len(ahead))])

    learner = Learner(make)
    run = eager_decoder(target, learner).generate(PROMPT, settings)
    list(run)
    assert run.tokens == expected
    found: list[int] = []
    for text, rows in learner.told:
        found += rows
        assert text == PROMPT + expected[: len(found)]
    assert found == expected
    assert limit == 1 or len(learner.told) < limit, "some steps told of several tokens"


class Pausing(VerifyAllPlanner):
    """Drafts in every step until it is ``paused``."""

    paused = False

    def may_draft(self, request_id: int) -> bool:
        return not self.paused

    def is_paused(self, request_id: int) -> bool:
        return self.paused


def test_one_that_may_not_draft_does_not_learn() -> None:
    """A drafter that may not draft does not learn either, because learning is a cost of drafts."""
    target, settings = Target.wrap(tiny_model()), SamplingSettings(30, ignore_eos=True)
    learner = Learner(lambda request: DraftTree.empty())
    planner = Pausing()
    loop = StepLoop(target, {"learner": learner}, planner, 1, 700)
    request = Request(1, target, PROMPT, settings, "learner")
    loop.join(request)
    for _ in range(10):
        loop.step()
    planner.paused = True
    while loop.running:
        loop.step()
    assert len(learner.told) == 10


def test_a_learner_that_fails_costs_nothing_but_its_lesson() -> None:
    class Failing(Learner):
        def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None:
            raise ValueError("no more room")

    target, settings = Target.wrap(tiny_model()), SamplingSettings(10)
    loop = eager_loop(target, {"failing": Failing(lambda request: DraftTree.empty())})
    request = Request(1, target, PROMPT, settings, "failing")
    loop.join(request)
    while loop.running:
        loop.step()
    assert list(request.generated) == alone(target, PROMPT, settings)
    assert request.stats.draft_failures["ValueError"] == 10


def test_one_that_cannot_say_what_it_wants_is_refused_before_anything_runs() -> None:
    """Regression: ``reads_logits`` used to be read in each step, where an error would have failed the step of all requests."""

    class Broken(MadeUpDrafter):
        @property
        def reads_logits(self) -> bool:
            raise RuntimeError("no answer")

        def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None: ...

    with pytest.raises(RuntimeError, match="no answer"):
        eager_loop(Target.wrap(tiny_model()), {"broken": Broken(lambda request: DraftTree.empty())})


def test_several_requests_at_once_teach_their_own_words() -> None:
    target, learner = Target.wrap(tiny_model()), Learner(lambda request: DraftTree.empty())
    loop = eager_loop(target, {"learner": learner}, slots=3)
    prompts = [PROMPT, PROMPT[::-1], [7, 7]]
    expected = [alone(target, prompt, SamplingSettings(6)) for prompt in prompts]
    for number, prompt in enumerate(prompts):
        loop.join(Request(number, target, prompt, SamplingSettings(6), "learner"))
    while loop.running:
        loop.step()
    assert len(learner.told) == 18
    for text, [said] in learner.told:
        assert text[-1] == said
        assert any(text == [*prompt, *answer][: len(text)] for prompt, answer in zip(prompts, expected, strict=True))


def test_a_replay_teaches_what_an_engine_does() -> None:
    """Regression: a replay used to leave out the last step of each text."""
    target, live, again = Target.wrap(tiny_model()), TokenRecyclingDrafter(), TokenRecyclingDrafter()
    loop, texts = eager_loop(target, {NAME: live}), []
    for number, (prompt, limit) in enumerate(((PROMPT, 2), (PROMPT, 30), ([7, 7, 3], 11))):
        request = Request(number, target, prompt, SamplingSettings(limit), NAME)
        loop.join(request)
        while loop.running:
            loop.step()
        texts.append(Recording.of(Generation(request, lambda generation: None), target.vocab_size))
    replayer = Replayer(again, states=RecordedStates(target, again, 300))
    for text in texts:
        replayer.replay(text)
    assert again.stats()["ends"] == live.stats()["ends"] > 40


def test_a_replay_books_what_learning_takes() -> None:
    """Regression: a replay used not to count the time of learning, although it is a cost of drafts in service."""

    class Slow(TokenRecyclingDrafter):
        def learn_logits(self, generated: Sequence[GeneratedLogits]) -> None:
            time.sleep(0.01)

    target = Target.wrap(tiny_model())
    settings = SamplingSettings(5)
    answer = np.array(alone(target, PROMPT, settings), np.int32)
    slow = Slow()
    replayer = Replayer(slow, states=RecordedStates(target, slow, 300), pass_seconds=lambda rows, context: 0.0)
    found = replayer.replay(Recording(np.array(PROMPT, np.int32), answer, settings, VOCAB))
    assert found.seconds >= 0.03  # of five tokens neither the first nor the last comes with a draft


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_an_answer_that_comes_again_is_drafted_from_what_was_said(temperature: float) -> None:
    target, drafter = Target.wrap(tiny_model()), TokenRecyclingDrafter()
    settings = SamplingSettings(40, temperature, seed=3)
    decoder = eager_decoder(target, drafter)
    accepted = []
    for _ in range(2):
        run = decoder.generate(PROMPT, settings)
        list(run)
        assert run.tokens == alone(target, PROMPT, settings)
        accepted.append(run.stats.accepted)
    assert accepted[1] > 15
    assert accepted[1] > accepted[0]
    other = decoder.generate(PROMPT, SamplingSettings(40, temperature, seed=4))
    list(other)
    assert other.tokens == alone(target, PROMPT, SamplingSettings(40, temperature, seed=4))
    assert drafter.stats()["ends"] > 40


def test_in_one_tree_it_is_a_source_like_the_others() -> None:
    target, calibration = Target.wrap(tiny_model()), Calibration()
    models = load_drafters(target, DrafterConfig(recycle=True), calibration=calibration)
    assert [model.name for model in models] == [NAME]
    assert make_drafter(NAME, VOCAB, models=models) is models[0]
    hybrid = make_drafter("hybrid", VOCAB, models=models, calibration=calibration)
    assert isinstance(hybrid, HybridDrafter)
    assert hybrid.reads_logits
    assert not HybridDrafter([PromptLookupDrafter(VOCAB)]).reads_logits
    decoder, settings = eager_decoder(target, hybrid), SamplingSettings(30)
    for _ in range(2):
        run = decoder.generate(PROMPT, settings)
        list(run)
        assert run.tokens == alone(target, PROMPT, settings)
    assert any(
        int(bits) & source_bits("token-recycling") for bits in run.stats.drafted.by_source()["accepted_by_source"]
    )
    assert hybrid.stats()[f"{NAME}: calls"] > 0
    assert NAME in {each.source for each in calibration.learned()}


def test_what_it_is_worth_is_learned() -> None:
    """The drafter is certain of a token that the target no longer accepts."""
    drafter = TokenRecyclingDrafter()
    logits = torch.full((1, VOCAB), -20.0)
    logits[0, 7] = 0.0
    text = np.array([1, 2, 3, 4, 5, 7], np.int32)
    drafter.learn_logits([GeneratedLogits(1, text, logits)])
    request = DraftRequest(1, text[:-1], 4)
    first = drafter.propose([request])[0]
    assert first.tokens[0] == 7
    assert first.scores[0] > 0.8
    for _ in range(60):
        drafter.propose([request])
        drafter.observe({1: np.array([9], np.int32)})
    assert drafter.propose([request])[0].scores[0] < 0.4


def test_behind_a_path_it_drafts_as_behind_the_text() -> None:
    drafter = TokenRecyclingDrafter()
    generator = torch.Generator().manual_seed(0)
    text = np.array([1, 2, 3, 4, 5, 6, 7, 8], np.int32)
    drafter.learn_logits([GeneratedLogits(1, text, 5 * torch.randn((6, VOCAB), generator=generator))])
    for settings in (SamplingSettings(), SamplingSettings(temperature=1.0, seed=5)):
        whole = DraftRequest(1, text[:-1], 64, settings=settings)
        part = DraftRequest(2, text[:-3], 64, settings=settings)
        [[expected]] = drafter.draft([whole])
        [[found]] = drafter.draft_after([part], [[text[-3:-1]]])
        assert len(expected)
        assert found.tokens.tolist() == expected.tokens.tolist()
        assert np.all(found.sources == source_bits("token-recycling"))
        assert np.array_equal(expected.scores, found.scores)


def test_a_vocabulary_of_a_toy_is_not_learned_and_a_size_that_is_none_refused() -> None:
    drafter = TokenRecyclingDrafter(ends=64)
    drafter.learn_logits([GeneratedLogits(1, np.array([1, 2], np.int32), torch.zeros((1, 5)))])
    assert drafter.stats()["ends"] == 0
    with pytest.raises(InvalidArgument, match="ends is 3"):
        TokenRecyclingDrafter(ends=3)


def test_the_command_line_names_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--model", "/nowhere", "--drafter", NAME, "A poem."]) == 2
    assert f"--drafter {NAME} needs --set recycle=true; add it" in capsys.readouterr().err
    assert (
        main(["generate", "--model", "/nowhere", "--drafter", "prompt-lookup", "--set", "recycle=true", "A poem."]) == 2
    )
    assert "does not use the options of token-recycling that are given" in capsys.readouterr().err
    assert main(["generate", "--worker", "grpc://127.0.0.1:1", "--set", "recycle=true", "A poem."]) == 2
    assert "recycle cannot be given with --worker" in capsys.readouterr().err
    assert main(["replay", "/nowhere.jsonl", "--set", "recycle=true"]) == 2
    assert "token-recycling reads the model that was recorded; add --model MODEL" in capsys.readouterr().err


def test_what_learning_takes_is_a_part_of_what_drafts_cost() -> None:
    """Regression: the time of learning used not to be counted, so drafts with a small gain cost more than they gained."""

    class Slow(MadeUpDrafter):
        def observe(self, generated: Generated) -> None:
            time.sleep(0.005)

    target, slow = Target.wrap(tiny_model()), Slow(lambda request: DraftTree.empty())
    planner = Booked()
    loop = StepLoop(target, {"slow": slow}, planner, 1, 700)
    loop.join(Request(1, target, [1, 2, 3], SamplingSettings(6, ignore_eos=True), "slow"))
    while loop.running:
        loop.step()
    assert len(planner.candidates) == 4  # of six tokens the first needs no draft, and the last none
    assert min(offer.seconds for offer in planner.candidates) >= 0.005


def test_what_keeping_accounts_takes_is_a_part_of_what_drafts_cost() -> None:
    """The time of ``record`` counts in the next step. A record is made when all other costs of its step are known."""

    class Slow(Booked):
        def record(self, candidates: Sequence[DraftCandidate], *facts: Any) -> None:
            super().record(candidates, *facts)
            time.sleep(0.005)

    target, planner = Target.wrap(tiny_model()), Slow()
    loop = StepLoop(target, {"none": MadeUpDrafter(lambda request: DraftTree.empty())}, planner, 1, 700)
    loop.join(Request(1, target, [1, 2, 3], SamplingSettings(6, ignore_eos=True), "none"))
    while loop.running:
        loop.step()
    assert len(planner.candidates) == 4
    assert min(offer.seconds for offer in planner.candidates[1:]) >= 0.005
