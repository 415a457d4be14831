"""Waiting for a condition, for as long as only a hang takes."""

from __future__ import annotations

import time
from collections.abc import Callable

HANG = 60.0
"""Seconds: only a hang lasts longer."""


def until(condition: Callable[[], bool]) -> None:
    """Return once ``condition()`` holds; fails if it never does."""
    end = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)
