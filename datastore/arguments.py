"""Checks the types and ranges of arguments of public methods. Local and remote datastores share these checks.

Checks raise InvalidArgument with the argument's name, its type or value, and advice on a valid value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np

from suffolk.datastore.checks import whole_number
from suffolk.datastore.errors import Field, InvalidArgument

_INTEGERS = (int, np.integer)
_LISTS = (list, tuple, np.ndarray)


def whole_numbers(name: str, values: object) -> int | list[int]:
    """Check one whole number, or a list of whole numbers. Returns it as ints."""
    if isinstance(values, _INTEGERS) and not isinstance(values, bool):
        return int(values)
    if not is_list(values):
        raise InvalidArgument(
            Field(name), f" is {values!r}, of type {_kind(values)}; give a whole number, or a list of them"
        )
    for index, value in enumerate(values):
        if not isinstance(value, _INTEGERS) or isinstance(value, bool):
            whole_number(f"{name}[{index}]", value)  # raises the error for this value
    return list(map(int, values))


def check_contexts(contexts: object) -> None:
    """Check that contexts are a list of lists. Their token ids are checked when they are read."""
    if not is_list(contexts):
        raise InvalidArgument(
            Field("contexts"), f" is of type {_kind(contexts)}; give a list with the token ids of each context"
        )
    for index, context in enumerate(contexts):
        if not isinstance(context, _LISTS) and not is_list(context):
            raise InvalidArgument(
                Field(f"contexts[{index}]"), f" is of type {_kind(context)}; token ids are a list of integers"
            )


def check_text(name: str, value: object) -> None:
    """Check that ``value`` is a text that can be sent: without surrogates (halves of characters)."""
    if not isinstance(value, str):
        raise InvalidArgument(Field(name), f" is {str(value)[:60]}, of type {_kind(value)}; it must be a text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(Field(name), f" has a surrogate at {error.start}; decode its bytes as UTF-8") from None


def check_texts(name: str, values: object) -> None:
    """Check that ``values`` is a list or another collection of texts, not a single text."""
    if isinstance(values, str):
        raise InvalidArgument(Field(name), f" is the text {values!r}; give a list of texts, such as [{values!r}]")
    if not isinstance(values, Collection):
        raise InvalidArgument(Field(name), f" is of type {_kind(values)}; give a list of texts")
    for index, value in enumerate(values):
        check_text(f"{name}[{index}]", value)


def check_groups(groups: object) -> None:
    """Check ``groups``: one group for all items, or a list with a group or None for each item."""
    if groups is None or isinstance(groups, str):
        groups = [groups]
    if not is_list(groups):
        raise InvalidArgument(
            Field("group"), f" is of type {_kind(groups)}; give a text, or a list with a text or None for each item"
        )
    for index, group in enumerate(groups):
        if group is not None:
            check_text(f"group[{index}]" if len(groups) > 1 else "group", group)


def check_iterable(name: str, values: object) -> None:
    """Check that ``values`` is iterable and no text."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidArgument(Field(name), f" is of type {_kind(values)}; give a list")


def check_flag(name: str, value: object) -> None:
    """Check that ``value`` is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidArgument(Field(name), f" is {value!r}, of type {_kind(value)}; it must be True or False")


def check_size(field: str, size: int, limit: int, unit: str, remedy: str = "") -> None:
    """Check that ``size`` is at most ``limit``. ``unit``: unit of both, for example "tokens". ``remedy``: advice for the
    message."""
    if size > limit:
        raise InvalidArgument(Field(field), f" has {size} {unit}; the limit is {limit}{remedy and '; '}{remedy}")


def check_deadline(seconds: float, limit: float) -> None:
    if not 0 < seconds <= limit:
        raise InvalidArgument(Field("deadline"), f" is {seconds:g} s; it must be above 0 and at most {limit:g}")


def is_list(value: object) -> TypeGuard[Sequence[Any]]:
    """Whether ``value`` is a sequence of items: a list or an array, but no text."""
    if isinstance(value, list):  # by far the most common, and much faster than the check of an abstract class
        return True
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _kind(value: object) -> str:
    return type(value).__name__
