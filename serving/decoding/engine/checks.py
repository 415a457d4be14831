"""Checks the types of arguments. numpy's numbers count as numbers, and ``bool`` does not."""

from __future__ import annotations

from numbers import Integral, Real

from suffolk.datastore.errors import Field, InvalidArgument


def whole_number(name: str, value: object) -> int:
    """``value`` as an int. Raises InvalidArgument if it is not a whole number; 5.0 and "5" are not."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidArgument(Field(name), f" is {value!r}, {_kind(value)}; it must be a whole number")
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
        raise InvalidArgument(Field(name), f" is {value!r}, {_kind(value)}; it must be a number")
    try:
        return float(value)
    except OverflowError:
        raise InvalidArgument(
            Field(name), " is beyond all floating-point numbers; it must be far nearer to 0"
        ) from None


def text(name: str, value: object) -> str:
    """``value``, a string. Raises InvalidArgument otherwise."""
    if not isinstance(value, str):
        raise InvalidArgument(Field(name), f" is {value!r}, {_kind(value)}; it must be a text")
    return value


def listed(name: str, value: object, of: str) -> tuple[object, ...]:
    """``value``, a tuple or list, as a tuple. Raises InvalidArgument otherwise; ``of`` names its items."""
    if not isinstance(value, tuple | list):
        raise InvalidArgument(
            Field(name), f" is {value!r}, {_kind(value)}; it must be a tuple of {of}, also for a single one"
        )
    return tuple(value)


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"
