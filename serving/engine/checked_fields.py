"""Checks the fields of dataclasses by their annotations, and reads dataclasses from JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound
from suffolk.serving.engine.checks import listed, number, text, whole_number

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Within:
    """The range of a number, as in ``Annotated[int, Within(1, 64)]``.

    Attributes:
        least, most: the bounds, inclusive.
        words: the range in error messages; empty for "between LEAST and MOST".
    """

    least: float
    most: float
    words: str = ""


def check_fields(config: Any, of: str = "") -> None:
    """Check the fields of a dataclass by their annotations. ``of`` follows the fields' names in error messages.

    Supports int, float, bool, str, ``Literal`` of strings, dataclasses, tuples of these, and unions of two supported types.

    Raises:
        InvalidArgument: a value is of another type or out of its range.
    """
    hints = get_type_hints(type(config), include_extras=True)
    for field in fields(config):
        _check(field.name, getattr(config, field.name), hints[field.name], of)


def from_json(kind: type[T], values: object, what: str) -> T:
    """The dataclass ``kind`` from a JSON object. Reads nested dataclasses and tuples of them too.

    ``what`` names the object in messages. Raises InvalidArgument: not an object, or a field is unknown, missing or invalid.
    """
    every = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    names = ", ".join(every)
    if not isinstance(values, Mapping):
        raise InvalidArgument(f"{what} is of type {type(values).__name__}; it must be an object with {names}")
    if unknown := [name for name in values if name not in every]:
        raise InvalidArgument(f"{what} has the key {unknown[0]!r}; it must have {names}, no more")
    needed = [name for name, each in every.items() if each.default is each.default_factory is MISSING]
    if missing := [name for name in needed if name not in values]:
        raise InvalidArgument(f"{what} has no {missing[0]}; it needs {', '.join(needed)}")
    hints = get_type_hints(kind, include_extras=True)
    return kind(**{name: _read(hints[name], value, name) for name, value in values.items()})


def read_object(path: Path, what: str, advice: str, most_bytes: int = 1 << 26) -> dict[str, Any]:
    """The JSON object in a file. ``what``: the file's name in messages; ``advice``: what to do about them.

    Raises:
        NotFound: it cannot be read.
        Corruption: it is no JSON object, or larger than ``most_bytes``.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise NotFound(f"{what}: cannot be read ({error.strerror}); {advice}") from error
    if len(content) > most_bytes:
        raise Corruption(f"{what}: larger than {most_bytes} bytes; {advice}")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Corruption(f"{what}: no JSON ({error}); {advice}") from error
    if not isinstance(found, dict):
        raise Corruption(f"{what}: holds a {type(found).__name__}, no object; {advice}")
    return found


def _member(hint: Any, value: Any) -> Any:
    """The member of the union ``hint`` that fits ``value``, or the first; ``hint`` itself if it is no union."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    fitting = tuple if isinstance(value, tuple | list) else type(value)
    return next((each for each in members if fitting in (each, get_origin(each))), members[0])


def _check(name: str, value: Any, hint: Any, of: str) -> None:
    kind, within = _member(hint, value), None
    if get_origin(kind) is Annotated:
        kind, within = get_args(kind)
    if kind is NoneType:
        return
    if get_origin(kind) is tuple:
        for place, each in enumerate(listed(name + of, value, "values")):
            _check(f"{name}[{place}]", each, get_args(kind)[0], of)
    elif kind is bool and not isinstance(value, bool):
        raise InvalidArgument(f"{name}{of} is {value!r}; it must be true or false")
    elif kind is str:
        text(name + of, value)
    elif get_origin(kind) is Literal and value not in get_args(kind):
        raise InvalidArgument(f"{name}{of} is {value!r}; it must be one of {', '.join(get_args(kind))}")
    elif isinstance(kind, type) and is_dataclass(kind) and not isinstance(value, kind):
        raise InvalidArgument(f"{name}{of} is {value!r}; it must be a {kind.__name__}")
    elif kind in (int, float):
        found = whole_number(name + of, value) if kind is int else number(name + of, value)
        if within is not None and not within.least <= found <= within.most:  # also refuses NaN
            words = within.words or f"between {within.least} and {within.most}"
            raise InvalidArgument(f"{name}{of} is {found}; it must be {words}")


def _read(hint: Any, value: Any, name: str) -> Any:
    kind = _member(hint, value)
    if isinstance(kind, type) and is_dataclass(kind):
        return from_json(kind, value, name)
    if get_origin(kind) is not tuple:
        return value
    items, of = listed(name, value, "values"), get_args(kind)[0]
    return tuple(_read(of, each, f"{name}[{place}]") for place, each in enumerate(items))
