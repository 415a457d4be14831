"""How far retrieval gets in a request, by how far it got in those before."""

from __future__ import annotations

import numpy as np

from suffolk.serving.drafters.hybrid.precedents import Precedents

COPY, OWN = (0, 10, 10, 10), (0, 0, 0, 1)
COMPLETE, ASK = [*range(1, 25)], [*range(1, 9), *range(30, 46)]
"""Two templates behind the same system prompt."""


def prompt(
    template: list[int], *words: int, end: tuple[int, ...] = (91, 92, 93, 94, 95, 96)
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array([*template, *words, *end], np.int32)


def mean(steps: tuple[int, ...]) -> float:
    return float(np.mean(steps))


def test_nothing_is_expected_before_a_request_has_ended() -> None:
    outlook = Precedents().of(prompt(ASK))
    assert not outlook.others
    assert outlook.steps(()) == (0,) * 8
    assert outlook.steps((3, 2)) == (3, 2, *(0,) * 7)


def test_requests_of_the_same_template_tell_most() -> None:
    """An answer that copies its prompt was once expected to go as all others do: its prompt was read by a draft model in vain."""
    precedents = Precedents()
    for number in range(3):
        precedents.add(prompt(COMPLETE, 100 + number), COPY)
        precedents.add(prompt(ASK, 200 + number), OWN)
    assert mean(precedents.of(prompt(COMPLETE, 50)).steps(())) > 6
    assert mean(precedents.of(prompt(ASK, 51)).steps(())) < 0.5


def test_a_prompt_that_ends_otherwise_is_of_another_kind() -> None:
    """The beginning of an answer stands at the end of a prompt whose answer is to go on with it."""
    precedents = Precedents()
    for number in range(3):
        precedents.add(prompt(COMPLETE, 100 + number), COPY)
        precedents.add(prompt(COMPLETE, 200 + number, end=(60 + number,)), OWN)
    assert mean(precedents.of(prompt(COMPLETE, 50)).steps(())) > 5
    assert mean(precedents.of(prompt(COMPLETE, 51, end=(70,))).steps(())) < 4


def test_a_text_that_all_ask_about_does_not_outweigh_a_request_s_own_steps() -> None:
    """Answers that copied a long document would else have kept a draft model out of one that did not."""
    document, precedents = [*range(1000, 1500)], Precedents()
    precedents.add(prompt(ASK, 1), OWN)
    precedents.add(prompt(document, 2), COPY)
    outlook = precedents.of(prompt(document, 3))
    assert mean(outlook.steps(())) > 6
    assert mean(outlook.steps((0,) * 6)) < 1.5


def test_its_own_steps_tell_more_than_others() -> None:
    precedents = Precedents()
    for number in range(3):
        precedents.add(prompt(COMPLETE, 100 + number), COPY)
    outlook = precedents.of(prompt(COMPLETE, 50))
    steps = outlook.steps((0, 0, 0, 0, 0, 0))
    assert steps[:6] == (0,) * 6
    assert mean(steps) < 2
    assert outlook.steps((0,) * 20) == (0,) * 20


def test_bursts_longer_than_all_others_are_taken_for_the_most_like_them() -> None:
    """So unlikely that their chance is no number above 0, where it is not a logarithm."""
    precedents = Precedents()
    precedents.add(prompt(ASK, 1), OWN)
    precedents.add(prompt(ASK, 2), (1, 1, 2, 1))
    outlook = precedents.of(prompt(ASK, 3))
    assert set(outlook.steps((60,) * 12)[12:]) == {1, 2}


def test_only_the_last_requests_are_remembered() -> None:
    precedents = Precedents()
    for number in range(100):
        precedents.add(prompt(ASK, number), OWN)
    assert len(precedents.of(prompt(ASK, 1)).others) == 33  # and one in which retrieval brought nothing
    precedents.clear()
    assert not precedents.of(prompt(ASK, 1)).others


def test_what_is_remembered_does_not_change_with_what_was_given() -> None:
    precedents, text = Precedents(), prompt(COMPLETE, 7)
    precedents.add(text, COPY)
    text[:] = 0
    precedents.add(prompt([0] * 24, 7), OWN)
    assert mean(precedents.of(prompt(COMPLETE, 7)).steps(())) > 6
