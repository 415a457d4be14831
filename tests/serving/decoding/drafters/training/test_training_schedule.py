"""Tests the order of windows and the learning rate."""

from __future__ import annotations

import pytest

from suffolk.serving.decoding.drafters.training.trainer import batches_of, learning_rate


def test_every_pass_sees_every_window_once_in_an_order_of_its_own() -> None:
    steps = [list(batches_of(step, 10, 4, 2, seed=5)) for step in range(6)]  # 3 batches a pass
    batches = [batch for step in steps for batch in step]
    assert [len(batch) for batch in batches] == [4, 4, 2] * 4
    passes = [sum(batches[begin : begin + 3], []) for begin in range(0, 12, 3)]
    assert all(sorted(each) == list(range(10)) for each in passes)
    assert len({tuple(each) for each in passes}) == 4
    assert list(batches_of(0, 10, 4, 2, seed=6)) != steps[0]


def test_the_rate_rises_and_then_falls_as_a_cosine() -> None:
    rates = [learning_rate(step, 100, 2.0, 0.1) for step in range(100)]
    assert rates[:10] == pytest.approx([0.2 * step for step in range(1, 11)])
    assert rates[10] == 2.0
    assert rates[55] == pytest.approx(1.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.001
    assert [learning_rate(step, 2, 1.0, 0.0) for step in range(2)] == pytest.approx([1.0, 0.5])
    assert learning_rate(4, 5, 1.0, 1.0) == 1.0
