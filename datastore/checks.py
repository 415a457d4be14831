"""Checks of single values and of keys. They import no other package. numpy's numbers count as numbers, and ``bool`` does not."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Integral, Real
from typing import TypeVar

from suffolk.datastore.errors import Field, InvalidArgument

T = TypeVar("T")
ABOVE_0 = math.ulp(0.0)
"""The smallest float above 0. As the least value of a range, it excludes 0."""
_ALIKE = 0.7
"""Least similarity of a misspelled word, as difflib counts it."""


def whole_number(name: str, value: object) -> int:
    """``value`` as an int. Raises InvalidArgument if it is not a whole number; 5.0 and "5" are not."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidArgument(Field(name), f" is {value!r}, of type {type(value).__name__}; it must be a whole number")
    return int(value)


def whole_within(name: str, value: object, least: int, most: int) -> int:
    """``value`` as an int. Raises InvalidArgument if it is not a whole number (``whole_number``), or is out of its range."""
    found = whole_number(name, value)
    check_range(name, found, least, most)
    return found


def check_range(name: str, value: float, least: float, most: float = math.inf, of: str = "") -> None:
    """Raise InvalidArgument if ``value`` is out of its range. ``of`` follows ``name`` in the message."""
    if not least <= value <= most:
        raise InvalidArgument(Field(name), f"{of} is {value}; it must be {in_words(least, most)}")


def in_words(least: float, most: float) -> str:
    """Format a range of numbers, such as "between 1 and 8", or "above 0" if ``least`` is ``ABOVE_0``."""
    if least == ABOVE_0:
        return f"above 0 and at most {most}" if most < math.inf else "above 0"
    return f"between {least} and {most}" if most < math.inf else f"{least} or more"


def number(name: str, value: object) -> float:
    """``value`` as a float. Raises InvalidArgument if it is not a number, or too large for a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidArgument(Field(name), f" is {value!r}, of type {type(value).__name__}; it must be a number")
    try:
        return float(value)
    except OverflowError:
        raise InvalidArgument(
            Field(name), " is beyond all floating-point numbers; it must be far nearer to 0"
        ) from None


def text(name: str, value: object) -> str:
    """Return ``value``. Raises InvalidArgument if it is no string."""
    if not isinstance(value, str):
        raise InvalidArgument(Field(name), f" is {value!r}, of type {type(value).__name__}; it must be a text")
    return value


def listed(name: str, value: object, of: str) -> tuple[object, ...]:
    """Return ``value`` as a tuple. Raises InvalidArgument unless it is a tuple or a list. ``of`` names its items."""
    if not isinstance(value, tuple | list):
        raise InvalidArgument(
            Field(name),
            f" is {value!r}, of type {type(value).__name__}; it must be a tuple of {of}, also for a single one",
        )
    return tuple(value)


def or_default(name: str, value: T | None, default: T) -> T:
    """``value``; for None ``default``. Raises InvalidArgument for an object of another type than the default's."""
    if value is None:
        return default
    if not isinstance(value, type(default)):
        raise InvalidArgument(f"{name} is of type {type(value).__name__}; give {type(default).__name__}, or None")
    return value


def check_keys(what: str, given: Iterable[object], known: Sequence[str]) -> None:
    """Raise InvalidArgument if a ``given`` key is not ``known``. ``what`` names the object with the keys."""
    for key in given:
        if key not in known:
            keys = ", ".join(known) or "none"
            raise InvalidArgument(Field(what), f": unknown key {key!r}{nearest(str(key), known)}; the keys are {keys}")


def check_choice(name: str, value: object, choices: Iterable[str], of: str = "") -> None:
    """Raise InvalidArgument if ``value`` is none of ``choices``. ``of``: as in ``check_range``."""
    if value not in (known := [*choices]):
        raise unknown(name, value, known, of)


def unknown(name: str, value: object, choices: Collection[str], of: str = "") -> InvalidArgument:
    """The error for a ``value`` that is none of ``choices``. The arguments are those of ``check_choice``."""
    near = nearest(str(value), choices)
    return InvalidArgument(Field(name), f"{of} is {value!r}{near}; it must be one of {', '.join(choices)}")


def nearest(word: str, known: Iterable[str], shown: Mapping[str, str] | None = None) -> str:
    """Suggest the word of ``known`` that is most similar to ``word``, or what ``shown`` has for it; "" if none is similar."""
    matches = get_close_matches(word, list(known), n=1, cutoff=_ALIKE)
    return "".join(f" (did you mean {(shown or {}).get(each, each)}?)" for each in matches)
