"""Costly work runs one piece at a time, for its share of the time."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from suffolk.datastore import duty_cycle
from suffolk.datastore.duty_cycle import DutyCycle


def test_work_takes_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(duty_cycle, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    cycle = DutyCycle(0.1)
    for _ in range(10):
        with cycle.work():
            now[0] += 1.0
    assert now[0] == pytest.approx(91.0)
    assert slept == pytest.approx([9.0] * 9)
    now[0] += 100.0
    with cycle.work():
        pass
    assert len(slept) == 9  # a single caller waits for nothing


def test_one_thread_at_a_time_and_errors_free_the_turn() -> None:
    cycle, inside, most = DutyCycle(1.0), [0], [0]

    def work() -> None:
        for _ in range(50):
            with cycle.work():
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    with pytest.raises(KeyError), cycle.work():
        raise KeyError
    with cycle.work():
        pass
