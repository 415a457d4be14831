"""Whether a network is run beside retrieval: what it added so far, against its time."""

from __future__ import annotations

import pytest

from suffolk.serving.drafters.hybrid.worth import Worth


def test_a_network_is_run_where_it_adds_enough_for_its_time() -> None:
    worth = Worth()
    assert worth.judge(5.0, 0.001).pays  # its time is not known yet
    worth.learn_cost(0.5)
    assert worth.judge(0.0, 1.0).pays
    assert not worth.judge(5.0, 1.0).pays
    assert worth.judge(5.0, 0.0).pays  # nobody knows what a token costs
    assert (worth.asked, worth.skipped) == (3, 1)


def test_what_it_added_is_learned_by_what_was_promised() -> None:
    worth = Worth()
    worth.learn_cost(0.5)
    for _ in range(200):
        worth.learn(0.0, 0)
        worth.learn(5.0, 2)
    assert worth.gain(0.05) < 0.1
    assert worth.gain(100.0) > 1.8
    assert worth.judge(0.0, 1.0).pays  # once, as nothing like it was tried before
    assert not worth.judge(0.0, 1.0).pays
    assert worth.judge(5.0, 1.0).pays


def test_a_refused_network_is_tried_now_and_then() -> None:
    worth = Worth()
    worth.learn_cost(100.0)
    asked = [number for number in range(160) if worth.judge(0.0, 1.0).pays]
    assert asked == [0, 51, 102, 153]
    worth.judge(0.25, 2.0)  # nothing like it was tried
    verdict = worth.judge(0.25, 2.0)
    assert (verdict.pays, verdict.retried, verdict.promised, verdict.cost) == (False, False, 0.25, 50.15)


def test_one_long_draft_does_not_make_those_after_it_look_dear() -> None:
    """A draft of sixteen tokens came first, and a draft model was left out for the rest of an answer."""
    worth = Worth(3.0)
    for seconds in (4.0, 1.0, 1.0, 2.0):
        worth.learn_cost(seconds)
    assert worth.cost == pytest.approx(2.0)
    for _ in range(40):
        worth.learn_cost(1.0)
    assert worth.cost == pytest.approx(1.0, abs=0.02)  # the latest count most


def test_what_is_believed_at_first_is_given() -> None:
    assert Worth(0.1).gain(0.0) == pytest.approx(0.1)
    assert Worth().gain(0.0) == 1.0
    assert Worth().gain(3.0) < Worth().gain(0.6)


def test_what_is_learned_beside_one_promise_is_a_guide_beside_others() -> None:
    """A draft model's first eight tokens were all right, and it was left out beside other promises for fifty steps."""
    worth = Worth(2.0)
    before = worth.gain(0.0), worth.gain(1.5)
    worth.learn(0.7, 8)
    assert worth.gain(0.7) > 2.5
    assert worth.gain(0.0) > before[0]
    assert worth.gain(1.5) > before[1]
    for _ in range(30):
        worth.learn(1.5, 0)
    assert worth.gain(1.5) < 0.2 < worth.gain(0.7)


def test_one_unlucky_draft_is_no_reason_to_give_up() -> None:
    """A draft model's first draft was a single token, and wrong: it was left out of the answers to come."""
    worth = Worth(1.0)
    worth.learn_cost(0.3)
    worth.learn(0.4, 0)
    assert worth.judge(0.4, 1.0).pays
    for _ in range(8):
        worth.learn(0.4, 0)
    assert worth.gain(0.4) < 0.3, "but many are"


def test_what_drafts_bring_alone_tells_what_they_add_beside_longer_ones() -> None:
    worth = Worth(1.0)
    for _ in range(300):
        worth.learn(0.0, 6)
    assert worth.gain(0.0) == pytest.approx(6, abs=0.1)
    assert worth.gain(0.7) == pytest.approx(6 - 0.75 * 0.7, abs=0.3)
    assert worth.gain(3.0) == pytest.approx(6 - 0.75 * 3.0, abs=0.5)
    assert worth.gain(20.0) == pytest.approx(6 / 4, abs=0.3)


def test_dear_drafts_are_not_hoped_for_but_must_have_paid() -> None:
    """Two networks were tried at the start of a text, and what they cost ended the drafts of retrieval too."""
    worth = Worth(2.0)
    assert worth.judge(0.0, 1.0, most_seconds=0.85).pays, "what it takes is not known yet"
    worth.learn_cost(0.6)
    worth.learn(0.0, 0)
    asked = [number for number in range(450) if worth.judge(0.0, 1.0, most_seconds=0.85).pays]
    assert asked == [200, 401], "seldom"
    assert worth.judge(0.0, 1.0, most_seconds=2.0).pays, "once retrieval has earned its cost"
    for _ in range(3):
        worth.learn(0.0, 2)
    assert worth.judge(0.0, 1.0, most_seconds=0.85).pays, "or it has"
