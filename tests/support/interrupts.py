"""Processes that heed an interrupt, however the tests were started."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heeded_interrupts() -> Iterator[None]:
    """Processes that are started inside take SIGINT as from a terminal.

    A shell without job control starts ``pytest &`` with SIGINT ignored, and what is ignored stays so in all processes below.
    ``suffolk`` rightly keeps to that, so the tests that interrupt it failed there, build and text whole and exit code 0. It looked
    like a loaded machine's fault because that is how the suite is run beside other work. Main thread only.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
