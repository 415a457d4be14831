"""Shows the progress of a training run: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.progress import Progress, TaskID

from suffolk.build_index.progress import PLAIN_SECONDS, bars


class TrainProgress(Protocol):
    """Receives the progress of a run, in the thread that trains."""

    def note(self, text: str) -> None:
        """Show a message."""
        ...

    def advance(self, work: str, share: float, facts: str) -> None:
        """A ``share`` of a piece of work (reading, training) is done; ``facts`` are shown beside it."""
        ...


class SilentProgress:
    """Shows nothing; for runs from Python."""

    def note(self, text: str) -> None: ...

    def advance(self, work: str, share: float, facts: str) -> None: ...


class PlainProgress:
    """Writes notes, and a line every half minute, to ``stream``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._work = ""
        self._first = 0.0
        self._began = self._last = time.monotonic()

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def advance(self, work: str, share: float, facts: str) -> None:
        now = time.monotonic()
        if work != self._work:
            self._work, self._first, self._began, self._last = work, share, now, now
        elif now - self._last >= PLAIN_SECONDS:
            self._last = now
            done = share - self._first  # a resumed run does not begin at 0
            left = f"about {(now - self._began) * (1 - share) / done:,.0f} s left" if done > 0 else "time left unknown"
            self.note(f"{work}: {share:4.0%}, {facts}, {left}")


class TerminalProgress:
    """A bar for each piece of work, with its facts and the time left."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def advance(self, work: str, share: float, facts: str) -> None:
        if work not in self._tasks:
            for task in self._tasks.values():
                self._progress.update(task, visible=False)
            self._tasks[work] = self._progress.add_task(work, total=1.0, facts="")
        self._progress.update(self._tasks[work], completed=share, facts=facts)


@contextmanager
def show_progress(stream: TextIO | None = None) -> Iterator[TrainProgress]:
    """The progress that fits ``stream``; None: standard error."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield PlainProgress(stream)
        return
    with bars(stream, "facts") as progress:
        yield TerminalProgress(progress)
