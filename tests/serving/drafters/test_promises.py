"""How far the promises of drafts are kept, by their size."""

from __future__ import annotations

import pytest

from suffolk.serving.drafters.hybrid.promises import Promises


def test_promises_are_believed_until_more_is_known() -> None:
    promises = Promises()
    assert [promises.expected(promised) for promised in (0.0, 0.3, 7.0)] == [0.0, 0.3, 7.0]


def test_large_promises_that_are_broken_say_nothing_of_small_ones() -> None:
    """Where retrieval promised two tokens and more a draft model was not asked; it brought one."""
    promises = Promises()
    for _ in range(50):
        promises.learn(3.0, 1)
        promises.learn(0.7, 1)
    assert promises.expected(3.0) == pytest.approx(1.0, abs=0.2)
    assert promises.expected(0.7) == 0.7
    for _ in range(500):
        promises.learn(3.0, 3)
    assert promises.expected(3.0) > 2.9
