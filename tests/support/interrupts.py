"""Gives started processes the default handling of SIGINT."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def default_interrupts() -> Iterator[None]:
    """Processes started inside the block receive SIGINT as from a terminal. Use it only in the main thread.

    A shell without job control starts ``pytest &`` with SIGINT ignored, and child processes inherit that. ``suffolk`` respects
    an ignored SIGINT, so tests that interrupt it would fail there.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
