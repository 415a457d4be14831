"""Ends a measurement early on Ctrl-C, and keeps the finished parts."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import TypedDict, TypeVar

from suffolk.build_index.progress import part_progress

T = TypeVar("T")


class Stop(TypedDict):
    """The point where a measurement stopped: after ``done`` of ``of`` parts, named by ``unit``."""

    done: int
    of: int
    unit: str


def keep(parts: Iterable[T], of: int, unit: str, shown: bool = True) -> tuple[list[T], Stop | None]:
    """Collect the items of ``parts`` up to Ctrl-C, and show the progress. An unfinished item is left out.

    Args:
        of: total number of parts.
        unit: name of the parts, in the plural.
        shown: whether to show the progress; one of two nested calls does.

    Returns:
        The parts, and the point where they stopped; None if all are done.

    Raises:
        KeyboardInterrupt: Ctrl-C came before the first part was finished, or a second time.
    """
    done: list[T] = []
    try:
        with part_progress(of, unit) if shown else nullcontext(lambda number: None) as show:
            for part in parts:
                done.append(part)
                show(len(done))  # counts only parts that are kept
    except KeyboardInterrupt:
        if not done:
            raise KeyboardInterrupt(f"before the first of {of:,} {unit} was finished") from None
        return done, Stop(done=len(done), of=of, unit=unit)
    return done, None


def stop_lines(stop: Stop | None) -> list[str]:
    """Return one line if the measurement stopped early, else none."""
    return [] if stop is None else [f"stopped after {stop['done']:,} of {stop['of']:,} {stop['unit']}"]


def exit_code(stop: Stop | None) -> int:
    """Return the exit code of a command that reported the kept parts."""
    return 0 if stop is None else 130
