"""Measures the parts of a build."""

from __future__ import annotations

import time


class PartClock:
    """Wall seconds of each part, from one lap to the next. Not thread-safe.

    Attributes:
        seconds: by part, in the order of their first laps.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = self._last = time.monotonic()

    def lap(self, part: str, without: float = 0.0) -> None:
        """Add the time since the last lap to ``part``. ``without``: seconds of it that are measured elsewhere."""
        now = time.monotonic()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last - without
        self._last = now

    @property
    def total(self) -> float:
        """Seconds until the last lap."""
        return self._last - self._began
