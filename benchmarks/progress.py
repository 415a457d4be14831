"""Shows the progress of measurements, which consist of parts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from suffolk.build_index.progress import rate, show_progress

T = TypeVar("T")


@contextmanager
def part_progress(of: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Call the yielded function with the number of finished parts. One at a time.

    On a terminal they are a bar with rate and time left, elsewhere a line now and then.

    Args:
        of: total number of parts.
        unit: name of the parts, in the plural.
    """
    begin = time.monotonic()
    with show_progress(timed=True) as show:

        def done(number: int) -> None:
            show.advance(unit, number / of, f"{number:,} of {of:,}, {rate(number, time.monotonic() - begin)}")

        show.advance(unit, 0.0, f"0 of {of:,}")
        yield done


def tracked(parts: Iterable[T], of: int, unit: str) -> Iterator[T]:
    """Yield ``parts``, and show how many are done (``part_progress``). A part is done when it comes."""
    with part_progress(of, unit) as done:
        for number, part in enumerate(parts, 1):
            done(number)
            yield part


def show_part(line: str) -> None:
    """Print the result of a part above the bar, on a terminal."""
    if sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)
