"""Admission control: every call of the draft service and of the worker is accepted or rejected here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from suffolk.datastore.errors import ResourceExhausted


class AdmissionController:
    """Accepts up to ``max_in_flight`` calls at a time and rejects the others at once; there is no queue. Thread-safe.

    ``DraftService.handle_call`` and ``DecodeService.generate`` enter ``admit_call``. gRPC and HTTP share one limit.
    """

    def __init__(self, max_in_flight: int, option: str) -> None:
        """``option``: the command-line option that sets the limit, for the error message."""
        self.max_in_flight = max_in_flight
        self._option = option
        self._lock = threading.Lock()
        self._in_flight = 0

    def in_flight(self) -> int:
        """Calls that are running now."""
        return self._in_flight

    @contextmanager
    def admit_call(self) -> Iterator[None]:
        """Count one call as running. Raises ResourceExhausted if ``max_in_flight`` calls are running."""
        with self._lock:
            if self._in_flight >= self.max_in_flight:
                raise ResourceExhausted(
                    f"the server already runs {self.max_in_flight} calls, its limit; try again later or raise {self._option}"
                )
            self._in_flight += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1
