"""Progress and remaining time of a long measurement."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


class TimeLeft:
    """Counts finished parts of ``total``, and extrapolates the remaining time from their mean. Not thread-safe."""

    def __init__(self, what: str, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._total, self._clock = what, total, clock
        self._begin, self._done = clock(), 0

    def done(self, detail: str) -> str:
        """Count one more part; return the progress line."""
        self._done += 1
        each = (self._clock() - self._begin) / self._done
        left = _words(each * (self._total - self._done))
        return f"{self._what}: {self._done} of {self._total}, {left} left: {detail}"


def print_progress(line: str) -> None:
    """Print a progress line."""
    print(line, file=sys.stderr, flush=True)


def _words(seconds: float) -> str:
    return (
        f"{seconds:.0f} s"
        if seconds < 90
        else f"{seconds / 60:.0f} min"
        if seconds < 5400
        else f"{seconds / 3600:.1f} h"
    )
