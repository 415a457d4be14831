"""The seconds of a step by part."""

from __future__ import annotations

import time


class Clock:
    """Seconds by the parts of a step. Not thread-safe."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """Add the time since the last lap to ``part``."""
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now
