"""Shows the progress of a build: bars on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from suffolk.build_index.report import megabytes

PLAIN_SECONDS = 30.0
"""Seconds between two lines of progress where there is no terminal."""


class BuildProgress(Protocol):
    """Receives the progress of a build, from the thread that builds."""

    def note(self, text: str) -> None:
        """Show a message."""
        ...

    def read(self, share: float, text_bytes: int, tokens: int) -> None:
        """``share`` of the inputs is tokenized; this run has read ``text_bytes`` and made ``tokens``."""
        ...

    def sort(self, name: str, tokens: int, share: float) -> None:
        """``share`` of the sorting of segment ``name`` is done."""
        ...


class SilentProgress:
    """Shows nothing; for builds from Python."""

    def note(self, text: str) -> None: ...

    def read(self, share: float, text_bytes: int, tokens: int) -> None: ...

    def sort(self, name: str, tokens: int, share: float) -> None: ...


class PlainProgress:
    """Notes, one line per segment, and a line every half minute, to ``stream``."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._began = self._last = time.monotonic()
        self._sorting = ""

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def read(self, share: float, text_bytes: int, tokens: int) -> None:
        now = time.monotonic()
        if now - self._last < PLAIN_SECONDS:
            return
        self._last = now
        seconds = now - self._began
        self.note(f"{share:4.0%} read, {_rates(text_bytes, tokens, seconds)}, {_left(share, seconds)}")

    def sort(self, name: str, tokens: int, share: float) -> None:
        if name != self._sorting:
            self._sorting = name
            self.note(f"sorting segment {name}: {tokens:,} tokens")


class TerminalProgress:
    """A bar with MB/s, tokens/s and the time left."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._reading = progress.add_task("reading", total=1.0, rates="")
        self._sorting = progress.add_task("sorting", total=1.0, rates="", visible=False)
        self._began = time.monotonic()

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def read(self, share: float, text_bytes: int, tokens: int) -> None:
        rates = _rates(text_bytes, tokens, time.monotonic() - self._began)
        self._progress.update(self._reading, completed=share, rates=rates)

    def sort(self, name: str, tokens: int, share: float) -> None:
        self._progress.update(self._sorting, completed=share, rates=f"{tokens:,} tokens", visible=share < 1)


@contextmanager
def show_progress(stream: TextIO | None = None) -> Iterator[BuildProgress]:
    """The progress that fits ``stream``; standard error if none is given."""
    stream = stream or sys.stderr
    if not stream.isatty():
        yield PlainProgress(stream)
        return
    with bars(stream, "rates") as progress:
        yield TerminalProgress(progress)


def bars(stream: TextIO, field: str) -> Progress:
    """Bars on a terminal: the task, its share, its ``field``, and the time left."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn(f"{{task.fields[{field}]}}"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=Console(file=stream), transient=True)


def _rates(text_bytes: int, tokens: int, seconds: float) -> str:
    seconds = max(seconds, 1e-9)
    return f"{megabytes(text_bytes)}, {text_bytes / 1e6 / seconds:.1f} MB/s, {tokens / seconds:,.0f} tokens/s"


def _left(share: float, seconds: float) -> str:
    return f"about {seconds * (1 - share) / share:,.0f} s left" if share > 0 else "time left unknown"
