"""The shutdown event wakes waiting threads. Threads and signal handlers can set it."""

from __future__ import annotations

import subprocess
import sys
import threading

from suffolk.serving.net.server import ShutdownEvent
from tests.support.waiting import HANG

SIGNALLED = """
import random, signal
from suffolk.serving.net.server import ShutdownEvent
signal.signal(signal.SIGALRM, lambda *_: event.set())
for _ in range(300):
    event = ShutdownEvent()
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 2e-5))
    event.wait()
"""


def test_a_handler_that_interrupts_the_wait_ends_it() -> None:
    """Regression: a signal just before the wait used to deadlock, because the handler needed the lock that the wait held."""
    assert subprocess.run([sys.executable, "-c", SIGNALLED], check=False, timeout=HANG).returncode == 0


def test_all_waiting_threads_return() -> None:
    event = ShutdownEvent()
    waiting = [threading.Thread(target=event.wait, daemon=True) for _ in range(3)]
    for thread in waiting:
        thread.start()
    event.set()
    for thread in waiting:
        thread.join(HANG)
    event.wait()
    assert not any(thread.is_alive() for thread in waiting)
