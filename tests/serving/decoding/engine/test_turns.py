"""Costly work takes turns."""

from __future__ import annotations

import threading

import pytest

from suffolk.serving.decoding.engine.loop.prompt import Turns


def test_work_takes_its_share_of_the_time() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    turns = Turns(0.1, lambda: now[0], sleep)
    for _ in range(10):
        with turns.take():
            assert turns.busy()
            now[0] += 1.0
        with turns.take(needed=False):
            assert not turns.busy()
    assert now[0] == pytest.approx(91.0)
    assert slept == pytest.approx([9.0] * 9)
    now[0] += 100.0
    with turns.take():
        pass
    assert len(slept) == 9  # a single caller waits for nothing


def test_one_thread_at_a_time_and_errors_free_the_turn() -> None:
    turns, inside, most = Turns(1.0), [0], [0]

    def work() -> None:
        for _ in range(50):
            with turns.take():
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    with pytest.raises(KeyError), turns.take():
        raise KeyError
    assert not turns.busy()
