"""Whether a prompt is read by a drafter: what drafts can save in the rest of the answer, against the reading."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from suffolk.serving.drafters.neural.answer_lengths import AnswerLengths
from suffolk.serving.drafters.neural.pay import Pay
from suffolk.serving.drafters.neural.prospect import Prospect, share_saved
from suffolk.serving.engine.loop.drafter import DraftRequest
from suffolk.serving.engine.policy.cost_model import CostModel
from suffolk.serving.engine.sampling.settings import SamplingSettings

ROW_SECONDS = CostModel([1, 2], [1.0, 1.1])
"""A pass of one row takes a second, each further one a tenth."""


def request(
    room: int, prompt: int = 100, written: int = 1, token_seconds: float = 10.0, number: int = 1
) -> DraftRequest:
    tokens = np.zeros(prompt + written, np.int32)
    return DraftRequest(number, tokens, 8, prompt, SamplingSettings(room), token_seconds)


def test_what_drafts_save_is_that_of_the_best_chain() -> None:
    pay = Pay(ROW_SECONDS)
    shares = [pay.share**depth for depth in (1, 2, 3)]
    chains = [(sum(shares[:depth]) - 0.1 * depth) / (1 + sum(shares[:depth])) for depth in (1, 2, 3)]
    asked = request(30)
    assert pay.saving(3, asked, 1) == pytest.approx(max(chains))
    assert pay.saving(1, asked, 1) == pytest.approx(chains[0])
    assert pay.saving(3, replace(asked, token_seconds=1.5), 1) == 0  # none of its passes is worth its time
    rows = replace(asked, row_seconds=1.0)
    assert pay.saving(1, rows, 1) == pytest.approx((shares[0] - 0.2) / (1 + shares[0]))  # to verify takes time too


def test_a_prompt_is_read_for_an_answer_that_can_win_the_time_back() -> None:
    """At a saving of three tenths, thirty tokens are 87 seconds' worth; 500 tokens take 51 seconds, half as much is for doubt."""
    prospect = Prospect(Pay(ROW_SECONDS), 1)
    assert prospect.repays(request(30), 500, 1)
    assert not prospect.repays(request(20, number=6), 500, 1)
    assert not prospect.repays(request(10, number=5), 500, 1)
    assert not prospect.repays(request(20, written=12, number=2), 500, 1)  # of which most is written
    assert prospect.repays(request(10, number=3), 100, 1)
    assert prospect.repays(request(10, token_seconds=0.0, number=4), 500, 1)  # nobody knows
    assert prospect.refused == 3


def test_answers_end_before_their_limit() -> None:
    prospect = Prospect(Pay(ROW_SECONDS), 1)
    assert prospect.repays(request(4096), 2000, 1)
    for _ in range(40):
        prospect.learn(1, 5)
    assert not prospect.repays(request(4096), 2000, 1)


def test_an_answer_longer_than_others_has_more_to_come() -> None:
    """It was taken to have nothing left, and its prompt was read for no draft however long it became."""
    prospect = Prospect(Pay(ROW_SECONDS), 1)
    for _ in range(40):
        prospect.learn(1, 30)
    assert not prospect.repays(request(4096), 1000, 1)
    assert prospect.repays(request(4096, written=200), 1000, 1)
    assert not prospect.repays(request(210, written=200, number=2), 1000, 1)


def test_what_is_left_of_an_answer_is_what_was_left_of_those_as_long() -> None:
    lengths = AnswerLengths()
    assert lengths.left(0) == lengths.left(500) == lengths.left(1_000_000) == pytest.approx(128)
    for tokens in (10, 100, 300):
        lengths.add(tokens)
    assert lengths.left(0) == pytest.approx((410 + 4 * 128) / 7)
    alike = 4 * math.exp(-50 / 128)
    assert lengths.left(50) == pytest.approx((50 + 250 + alike * 128) / (2 + alike))
    for _ in range(32):
        lengths.add(20)
    assert lengths.left(0) == pytest.approx((32 * 20 + 4 * 128) / 36)  # of the last alone


def test_a_prompt_is_read_all_the_same_now_and_then() -> None:
    prospect = Prospect(Pay(ROW_SECONDS), 1)
    read = [any(prospect.repays(request(2, number=number), 500, 1) for _ in range(30)) for number in range(60)]
    assert [number for number, each in enumerate(read) if each] == [19, 39, 59]
    assert prospect.refused == 57
    prospect.learn(0, 1)
    assert not prospect.repays(request(2, number=0), 500, 1)  # another request, with the number of one that ended
    assert prospect.refused == 58


def test_a_prompt_is_not_read_for_drafts_that_others_have_already() -> None:
    """Prompt lookup brought seven tokens a step, and a draft model read the prompt all the same: half of the gain was lost."""
    prospect = Prospect(Pay(ROW_SECONDS), 8)
    assert prospect.repays(request(60), 500, 1)
    assert not prospect.repays(replace(request(60, number=2), already=(7, 7, 7)), 500, 1)
    assert prospect.repays(replace(request(60, number=3), already=(0, 0, 1)), 300, 1)


def test_what_was_read_once_is_read_to_its_end() -> None:
    prospect = Prospect(Pay(ROW_SECONDS), 8)
    assert prospect.repays(request(60), 500, 1)
    assert prospect.repays(replace(request(60), already=(7, 7, 7)), 500, 1)
    prospect.learn(1, 60)
    assert not prospect.repays(replace(request(60), already=(7, 7, 7)), 500, 1)


def test_a_text_is_read_once_others_have_stopped_to_bring_tokens() -> None:
    """Retrieval was lucky in the first two of three steps, and a draft model was left out for the whole answer."""
    prospect = Prospect(Pay(ROW_SECONDS), 8)
    asked = request(60)
    assert not prospect.repays(replace(asked, already=(3, 3, 0)), 500, 1)
    assert prospect.repays(replace(asked, already=(3, 3, *[0] * 9)), 500, 1)
    assert prospect.refused == 1


def test_what_is_saved_beside_others_is_what_is_saved_alone_where_these_bring_nothing() -> None:
    assert share_saved(2.0, 0.5) == pytest.approx((2.0 - 0.5) / 3.0)
    assert share_saved(2.0, 0.5, (0, 0)) == pytest.approx((2.0 - 0.5) / 3.0)
    assert share_saved(2.0, 0.5, (1, 1)) == pytest.approx((1.25 / 2 - 0.5) / 3.25)
    assert share_saved(2.0, 0.5, (7, 7)) == 0
    assert share_saved(2.0, 0.5, (0, 2)) == pytest.approx((2 / 3 - 0.5) / (3 + 3))  # in the first step alone
    assert share_saved(1.0, 2.0) == 0
    assert share_saved([1.0, 2.0], [2.0, 0.5]).tolist() == pytest.approx([0.0, 0.5])
