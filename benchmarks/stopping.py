"""Ctrl-C ends a measurement early, and what it has measured by then is kept and reported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict, TypeVar

T = TypeVar("T")


class Stop(TypedDict):
    """Where a measurement was stopped: ``done`` of the ``of`` parts that it has, named by ``unit``."""

    done: int
    of: int
    unit: str


def keep(parts: Iterable[T], of: int, unit: str) -> tuple[list[T], Stop | None]:
    """What ``parts`` gives, up to Ctrl-C; a part that is not done by then is left out.

    Args:
        of: how many parts there are.
        unit: what they are, in the plural.

    Returns:
        The parts, and where they were stopped; None where they were not.

    Raises:
        KeyboardInterrupt: Ctrl-C, before the first part was done. A second one is raised as ever, wherever it comes.
    """
    done: list[T] = []
    try:
        for part in parts:
            done.append(part)
    except KeyboardInterrupt:
        if not done:
            raise KeyboardInterrupt(f"before the first of {of:,} {unit} was done") from None
        return done, Stop(done=len(done), of=of, unit=unit)
    return done, None


def stop_lines(stop: Stop | None) -> list[str]:
    """One line, if the measurement was stopped."""
    return [] if stop is None else [f"stopped after {stop['done']:,} of {stop['of']:,} {stop['unit']}"]


def exit_code(stop: Stop | None) -> int:
    """Of a command that has reported what was kept."""
    return 0 if stop is None else 130
