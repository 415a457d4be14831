"""Checks of single values and of keys, which need no package. numpy's numbers count as numbers, and ``bool`` does not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Integral, Real

from suffolk.datastore.errors import Field, InvalidArgument


def whole_number(name: str, value: object) -> int:
    """``value`` as an int. Raises InvalidArgument if it is not a whole number; 5.0 and "5" are not."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidArgument(Field(name), f" is {value!r}, of type {type(value).__name__}; it must be a whole number")
    return int(value)


def whole_within(name: str, value: object, least: int, most: int) -> int:
    """``value`` as an int. Raises InvalidArgument as ``whole_number``, and if it is out of its range."""
    found = whole_number(name, value)
    if not least <= found <= most:
        raise InvalidArgument(Field(name), f" is {found}; it must be between {least} and {most}")
    return found


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
    """``value``, a string. Raises InvalidArgument otherwise."""
    if not isinstance(value, str):
        raise InvalidArgument(Field(name), f" is {value!r}, of type {type(value).__name__}; it must be a text")
    return value


def listed(name: str, value: object, of: str) -> tuple[object, ...]:
    """``value``, a tuple or list, as a tuple. Raises InvalidArgument otherwise; ``of`` names its items."""
    if not isinstance(value, tuple | list):
        raise InvalidArgument(
            Field(name),
            f" is {value!r}, of type {type(value).__name__}; it must be a tuple of {of}, also for a single one",
        )
    return tuple(value)


def check_keys(what: str, given: Iterable[object], known: Sequence[str]) -> None:
    """Raises InvalidArgument: a ``given`` key is not ``known``. ``what`` has the keys."""
    for key in given:
        if key not in known:
            keys = ", ".join(known) or "none"
            raise InvalidArgument(Field(what), f": unknown key {key!r}{nearest(str(key), known)}; the keys are {keys}")


def nearest(word: str, known: Iterable[str]) -> str:
    """A suggestion for an unknown word: the most similar one of ``known``; empty if none is similar."""
    matches = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {matches[0]}?)" if matches else ""
