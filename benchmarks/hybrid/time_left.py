"""How far a long measurement is, and how long it will still take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


class TimeLeft:
    """Counts what is done of ``total`` and tells it with the time left, by the mean so far. Not thread-safe."""

    def __init__(self, what: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._total, self._clock = what, total, clock
        self._begin, self._done = clock(), 0

    def done(self, detail: str) -> str:
        """One more is done; the line that says so."""
        self._done += 1
        each = (self._clock() - self._begin) / self._done
        left = _words(each * (self._total - self._done))
        return f"{self._what}: {self._done} of {self._total}, {left} left: {detail}"


def say(line: str) -> None:
    """Tell whoever waits at the terminal."""
    print(line, file=sys.stderr, flush=True)


def _words(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )
