"""Shows the progress of a pass measurement."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PLAIN_SECONDS = 30.0
"""Seconds between two progress lines without a terminal."""


@contextmanager
def passes_progress(total: int) -> Iterator[Callable[[int], None]]:
    """Shows how many passes of ``total`` are done: a bar on a terminal, periodic lines elsewhere."""
    if not sys.stderr.isatty():
        yield _plain_progress(total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    rate = TextColumn("{task.fields[rate]:.1f} passes/s")
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=total, rate=0.0)
        begin = time.monotonic()
        yield lambda done: progress.update(task, completed=done, rate=done / max(time.monotonic() - begin, 1e-9))


def _plain_progress(total: int) -> Callable[[int], None]:
    begin = last = time.monotonic()

    def report(done: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PLAIN_SECONDS:
            last = now
            rate = done / (now - begin)
            left = (total - done) / rate
            print(
                f"{done} of {total} passes, {rate:.1f} passes/s, about {left:.0f} s left", file=sys.stderr, flush=True
            )

    return report
