"""The base class of drafters that keep a state for each request."""

from __future__ import annotations

from abc import ABC
from typing import Generic, TypeVar

from suffolk.serving.decoding.engine.loop.draft_failures import DraftFailures

State = TypeVar("State")


class StatefulDrafter(ABC, Generic[State]):
    """Keeps the states of requests and the free slots of a cache, and counts calls, passes and failures. Not thread-safe.

    Attributes:
        failures: its failed drafts.
    """

    def __init__(self, label: str, slots: int = 0) -> None:
        """``label``: its name in messages. ``slots``: the slots of its cache."""
        self.failures = DraftFailures(label)
        self._states: dict[int, State] = {}
        self._slots, self._free = slots, list(range(slots))
        self._calls = self._passes = 0
        self._prefill_seconds = 0.0

    def release(self, request_id: int) -> None:
        state = self._states.pop(request_id, None)
        if state is not None:
            self._released(request_id, state)

    def stats(self) -> dict[str, float]:
        return {"calls": self._calls, "passes": self._passes} | self.failures.stats()

    def close(self) -> None:
        for request_id in list(self._states):
            self.release(request_id)

    def _released(self, request_id: int, state: State) -> None:  # noqa: B027 - not every drafter keeps more
        """Free what a subclass keeps for the request besides ``state``."""

    def _has_slot(self) -> bool:
        """Whether a slot is free. Counts a failure otherwise."""
        if not self._free:
            self.failures.add("ResourceExhausted", f"all {self._slots} slots are taken")
        return bool(self._free)
