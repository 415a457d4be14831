"""How far a follower is behind its leader."""

from __future__ import annotations

import time


class Lag:
    """Thread-safe.

    Attributes:
        changes: number of changes that the follower lacked when the leader's last message arrived.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._in_step = time.monotonic()

    def note(self, changes: int, seen: float) -> None:
        """Note what was lacking. ``seen``: when the leader's position arrived, on the monotonic clock."""
        self.changes = max(0, changes)
        if not self.changes:
            self._in_step = seen

    def seconds(self) -> float:
        """Time since the follower last had everything."""
        return time.monotonic() - self._in_step
