"""A periodic thread goes on after errors, later and later, and ends when it is closed."""

from __future__ import annotations

import threading
import time

from suffolk.datastore.periodic_thread import PeriodicThread
from tests.support.waiting import HANG, until


def test_pauses_double_after_failures_and_errors_end_nothing() -> None:
    begins = list[float]()

    def work() -> bool:
        begins.append(time.monotonic())
        if len(begins) == 2:
            raise MemoryError
        return len(begins) > 3

    thread = PeriodicThread("test", work, 0.02, 0.06)
    until(lambda: len(begins) >= 5)
    thread.close()
    pauses = [after - before for before, after in zip(begins, begins[1:], strict=False)]
    assert pauses[0] >= 0.04
    assert min(pauses[1:3]) >= 0.06
    assert pauses[3] >= 0.02


def test_it_works_when_woken_and_closes_from_a_long_pause() -> None:
    worked = threading.Event()
    thread = PeriodicThread("test", worked.set, HANG)
    assert not worked.wait(0.01)
    thread.wake()
    assert worked.wait(HANG)
    begin = time.monotonic()
    thread.close()
    thread.close()
    assert time.monotonic() - begin < HANG / 2
