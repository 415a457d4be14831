"""A client that appends to a live store of a cluster, and knows what was acknowledged."""

from __future__ import annotations

import threading
import time

import suffolk
from suffolk.datastore.errors import SuffolkError


class Appends:
    """A thread that appends to the live store at ``address``, until ``lost`` is called."""

    def __init__(self, address: str) -> None:
        self._url = address
        self.acknowledged: list[int] = []
        self.longest = 0.0  # seconds between two acknowledged appends
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def lost(self) -> list[int]:
        """End the thread. Returns the numbers of the acknowledged documents that are not found exactly once."""
        self._stopping.set()
        self._thread.join()
        with suffolk.open(self._url, deadline=10, append=True) as store:
            store.stats()  # raises Unavailable: no copy leads
            return [number for number in self.acknowledged if store.lookup(_tokens(number)).count != 1]

    def _run(self) -> None:
        with suffolk.open(self._url, append=True) as store:
            number, last = 0, time.monotonic()
            while not self._stopping.wait(0.02):
                try:
                    store.append(_tokens(number), id=str(number))
                except SuffolkError:  # it may stay or vanish
                    number += 1
                    continue
                self.acknowledged.append(number)
                number, now = number + 1, time.monotonic()
                self.longest, last = max(self.longest, now - last), now


def _tokens(number: int) -> list[int]:
    return [1000 + number // 1000, 2000 + number % 1000]
