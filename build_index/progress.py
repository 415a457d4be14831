"""Shows the progress of long work: a bar on a terminal, a line every 30 seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import TextIO, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

PLAIN_SECONDS = 30.0
"""Seconds between two lines of progress without a terminal."""
DRAW_SECONDS = 0.1
"""Least seconds between two drawings of a bar."""
SPEED_SECONDS = 600.0
"""The time left is extrapolated from this many last seconds of work."""
T = TypeVar("T")


class WorkProgress:
    """Receives the progress of long work, for example a build or a training run. Called in the thread that does the work.

    This base class shows nothing; for calls from Python.
    """

    def note(self, text: str) -> None:
        """Show a message."""

    def advance(self, work: str, share: float, facts: str) -> None:
        """Show that the ``share`` (0..1) of the task ``work`` is done, with ``facts`` beside it."""


def rate(done: float, seconds: float, unit: str = "") -> str:
    """Format ``done`` units in ``seconds`` as a rate, for example "3.1 passes/s". Slow rates are per minute or per hour."""
    each_second = done / max(seconds, 1e-9)
    factor, time_unit = (1, "s") if each_second >= 1 else (60, "min") if each_second >= 1 / 60 else (3600, "h")
    number = each_second * factor
    return f"{number:,.0f}" * (number >= 100) + f"{number:.3g}" * (number < 100) + f" {unit}".rstrip() + f"/{time_unit}"


class PlainProgress(WorkProgress):
    """Writes notes, and a line every half minute, to ``stream``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = time.monotonic()
        self._begun: dict[str, tuple[float, float]] = {}

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def advance(self, work: str, share: float, facts: str) -> None:
        now = time.monotonic()
        first, began = self._begun.setdefault(work, (share, now))
        if now - max(began, self._last) >= PLAIN_SECONDS:
            self._last = now
            done = share - first  # a resumed task begins above a share of 0
            left = f"about {(now - began) * (1 - share) / done:,.0f} s left" if done > 0 else "time left unknown"
            self.note(f"{work}: {share:4.0%}, {facts}, {left}")


class TerminalProgress(WorkProgress):
    """Draws a bar for each task, with its facts and the time left. ``redraw``: whether only ``advance`` draws."""

    def __init__(self, progress: Progress, redraw: bool) -> None:
        self._progress, self._redraw, self._drawn = progress, redraw, 0.0
        self._tasks: dict[str, TaskID] = {}

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def advance(self, work: str, share: float, facts: str) -> None:
        if work not in self._tasks:
            self._tasks[work] = self._progress.add_task(work, total=1.0, facts="")
        for name, task in self._tasks.items():
            self._progress.update(task, visible=name == work)
        self._progress.update(self._tasks[work], completed=share, facts=facts)
        if self._redraw and time.monotonic() - self._drawn >= DRAW_SECONDS:
            self._progress.refresh()
            self._drawn = time.monotonic()


def segment_progress(show: WorkProgress, work: str, tokens: Mapping[str, int]) -> Callable[[str, float], None]:
    """A function that shows the progress of segment after segment. It is called with a segment's name and its finished share.

    ``tokens``: the size of each segment, by name.
    """
    total, begin = sum(tokens.values()), time.monotonic()
    before = dict(zip(tokens, accumulate(tokens.values(), initial=0), strict=False))

    def report(name: str, share: float) -> None:
        done = before[name] + share * tokens[name]
        speed = rate(done, time.monotonic() - begin, "tokens")
        show.advance(work, done / max(1, total), f"{total:,} tokens, {speed}")

    return report


@contextmanager
def show_progress(stream: TextIO | None = None, timed: bool = False) -> Iterator[WorkProgress]:
    """Yield the progress that fits ``stream``. None: standard error.

    ``timed``: whether the work is being timed. The bar is then drawn only when the work advances, not by a thread.
    """
    stream = stream or sys.stderr
    if not stream.isatty():
        yield PlainProgress(stream)
        return
    facts = TextColumn("{task.fields[facts]}")
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), facts, TimeRemainingColumn()
    with Progress(
        *columns,
        console=Console(file=stream),
        transient=True,
        auto_refresh=not timed,
        speed_estimate_period=SPEED_SECONDS,
    ) as progress:
        yield TerminalProgress(progress, timed)


@contextmanager
def part_progress(of: int, unit: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows the number of finished parts. It is called by one thread at a time.

    On a terminal it draws a bar with rate and time left. Elsewhere it prints a line now and then.

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
    """Yield ``parts``, and show how many have come (``part_progress``)."""
    with part_progress(of, unit) as done:
        for number, part in enumerate(parts, 1):
            done(number)
            yield part


def show_part(line: str) -> None:
    """On a terminal, print the result of a part above the bar."""
    if sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)
