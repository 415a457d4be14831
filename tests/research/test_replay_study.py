"""Tests drafts along recorded answers: accepted tokens, costs, and that nothing is lost without drafts."""

from __future__ import annotations

import numpy as np
import pytest

from research.replay import replay
from suffolk.benchmarks.decode.bounding_drafters import UselessDrafter
from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.retrieval.prompt_lookup import PromptLookupDrafter
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.decoding.replay.recording import Recording
from tests.support.drafters import MadeUpDrafter, tree

COSTS = CostModel([1, 2, 64], [1.0, 1.0, 8.0])


def answer(group: str, prompt: list[int], generated: list[int]) -> Recording:
    ids, text = np.asarray(prompt, np.int32), np.asarray(generated, np.int32)
    return Recording(ids, text, SamplingSettings(len(text)), 100, group=group)


ANSWERS = [answer("one", [1, 2, 3, 4], [5, 6, 7, 8] * 20), answer("two", [9], [1, 1])]


def test_no_drafts_change_nothing_but_their_own_time() -> None:
    found = replay(ANSWERS, [MadeUpDrafter(lambda request: DraftTree.empty())], COSTS, 0.0, 0)
    assert set(found) == {"one", "two"}
    for gain in found.values():
        assert gain["speed_up"] == pytest.approx(1.0, abs=0.001)
        assert gain["mean_generated_length"] == 1.0


def test_the_gain_of_correct_drafts_is_their_accepted_length() -> None:
    text = [*ANSWERS[0].prompt, *ANSWERS[0].generated]

    def know(request: DraftRequest) -> DraftTree:
        begin = len(request.tokens)
        return tree([99, *text[begin : begin + 1]], [-1] * (1 + len(text[begin : begin + 1])))

    [gain] = replay(ANSWERS[:1], [MadeUpDrafter(know)], CostModel([1, 8], [1.0, 1.0]), 0.0, 0).values()
    assert gain["mean_generated_length"] > 1.9
    assert gain["speed_up"] == pytest.approx(gain["mean_generated_length"], rel=0.01)


def test_a_drafter_that_learns_gains_and_one_that_is_useless_loses_little() -> None:
    [gain, _] = replay(ANSWERS, [PromptLookupDrafter(100)], COSTS, 0.05, 0).values()
    assert gain["speed_up"] > 2
    long = [answer("one", [1], np.random.default_rng(0).integers(50, 100, 400).tolist())]
    losses = [replay(long, [UselessDrafter(50)], COSTS, 0.05, seed)["one"]["speed_up"] for seed in range(8)]
    assert 0.98 < np.mean(losses) < 1.005  # the mean of 8 x 400 passes with 5 % noise each has 0.09 % noise
