"""Waits for a condition, up to a timeout that only a hang exceeds."""

from __future__ import annotations

import time
from collections.abc import Callable

HANG = 60.0
"""Timeout in seconds. Only a hang takes longer."""


def until(condition: Callable[[], bool]) -> None:
    """Wait until ``condition()`` holds, and fail at the timeout."""
    end = time.monotonic() + HANG
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)
