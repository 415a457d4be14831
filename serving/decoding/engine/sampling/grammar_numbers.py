"""Finds numbers of a schema that the grammar library does not hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LIMIT = 1 << 63
_VALUES = ("const", "enum")
_LOWEST = -_LIMIT + 512
"""The highest whole number that is -2^63 as a float."""
_UPPER = ("maximum", "exclusiveMaximum")


def unheld_number(schema: Any) -> str:
    """The keyword and value of the first one, as "const 9007199254740993"; empty if there is none.

    The library rounds whole values to 53 bits. A whole number of at most about -2^63 ends the process.
    """
    waiting: list[tuple[str, bool, Any]] = [("", False, schema)]  # keyword, whether it is inside of a value, and value
    while waiting:
        keyword, inside, value = waiting.pop()
        inside = inside or keyword in _VALUES
        if isinstance(value, Mapping):
            waiting += [(name, inside, each) for name, each in value.items()]
        elif isinstance(value, list):
            waiting += [(keyword, inside, each) for each in value]
        elif (keyword in _UPPER and isinstance(value, int | float) and value <= _LOWEST) or (
            inside and isinstance(value, int) and (abs(value) >= _LIMIT or int(float(value)) != value)
        ):
            return f"{keyword} {str(value)[:40]}"
    return ""
