"""Gives each side of a measurement a processor core of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def on_core(place: int) -> Iterator[bool]:
    """Run this thread, and the threads and processes that it starts in the block, on the core at ``place`` of those allowed.

    Yields False, and changes nothing, if there are not so many.
    """
    allowed = os.sched_getaffinity(0)
    if place >= len(allowed):
        yield False
        return
    os.sched_setaffinity(0, {sorted(allowed)[place]})
    try:
        yield True
    finally:
        os.sched_setaffinity(0, allowed)
