"""Admission: how many requests may be worked on at a time; what is beyond is refused at once, never queued."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from suffolk.datastore.errors import ResourceExhausted


class Admission:
    """A bounded number of places, shared by all transports of a server. Thread-safe."""

    def __init__(self, places: int, option: str) -> None:
        """``option``: what sets the number of places, for the message."""
        self.places = places
        self._option = option
        self._lock = threading.Lock()
        self._taken = 0

    def taken(self) -> int:
        """Requests being worked on right now."""
        return self._taken

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Hold a place; ResourceExhausted if there is none."""
        with self._lock:
            if self._taken >= self.places:
                raise ResourceExhausted(
                    f"the server works on {self.places} requests, its limit; try again later or raise {self._option}"
                )
            self._taken += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken -= 1
