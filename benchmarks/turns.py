"""Orders the parts of a measurement, so that a slow moment of the machine affects all methods and groups alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, zip_longest
from typing import TypeVar

T = TypeVar("T")


def rotated(items: Sequence[T], turn: int) -> list[T]:
    """``items`` in the order of a turn: each turn begins with the next item."""
    first = turn % len(items)
    return [*items[first:], *items[:first]]


def alternating(items: Iterable[T], group_of: Callable[[T], str]) -> list[T]:
    """``items`` with alternating groups: the first item of each group, then the second of each, and so on."""
    groups: dict[str, list[T]] = {}
    for each in items:
        groups.setdefault(group_of(each), []).append(each)
    return [each for each in chain.from_iterable(zip_longest(*groups.values())) if each is not None]
