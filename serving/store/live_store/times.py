"""The times of a live store: of its documents, and of the rewrite of its log that leaves out removed text."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

DELETED_SECONDS = 60.0
"""The text of a deleted document stays in the log for at most this time, and for the duration of one rewrite."""
REPLACED_SECONDS = 3600.0
"""The same for replaced, evicted or expired documents. The time is longer because these are many, and a rewrite copies all
remaining documents."""


class StoreClock:
    """Seconds since 1970. The system's clock is read once; afterwards a steady clock counts.

    Args:
        last: the time of the newest document that exists. The clock starts there if the system's clock is behind it.
    """

    def __init__(
        self, last: int = 0, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._steady = steady
        now = wall()
        self.behind = max(0.0, last - now)
        """Seconds that the system's clock was behind the newest document when the store was opened."""
        self._offset = max(float(last), now) - steady()

    def now(self) -> int:
        """The time in whole seconds."""
        return int(self._offset + self._steady())

    def set(self, now: float) -> None:
        """Count on from ``now``, for example the time of the store that this store copies."""
        self._offset = now - self._steady()


class RemovedText:
    """The deadline of the next rewrite of the log. Thread-safe.

    The log holds the text of removed documents until it is rewritten. Removals until then share one rewrite.
    """

    def __init__(self, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._deadline = math.inf

    def note_deleted(self) -> None:
        """Note that documents were deleted: no query finds them any more."""
        self._note(DELETED_SECONDS)

    def note_replaced(self) -> None:
        """Note that documents were replaced or evicted, or have expired: queries no longer find them."""
        self._note(REPLACED_SECONDS)

    def is_due(self) -> bool:
        """Whether the log must be rewritten now."""
        return self._steady() >= self._deadline

    def clear(self) -> None:
        """Note that a rewrite begins. It leaves out all text that was removed until now."""
        self._deadline = math.inf

    def note_failure(self) -> None:
        """Note that a rewrite failed."""
        self._note(0.0)

    def _note(self, seconds: float) -> None:
        self._deadline = min(self._deadline, self._steady() + seconds)
