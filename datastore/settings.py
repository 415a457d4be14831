"""Reads settings from JSON, TOML, YAML and options into dataclasses. Their annotations hold types and ranges."""

from __future__ import annotations

import errno
import json
import math
import sys
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from suffolk.datastore.checks import ABOVE_0, check_choice, check_keys, in_words, listed, number, text, whole_number
from suffolk.datastore.errors import Corruption, Field, InvalidArgument, NotFound
from suffolk.datastore.files import read_bounded

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")
REQUIRED: Any = MISSING
"""Default of a field that must be given."""


def option(default: Any, help: str, **more: Any) -> Any:
    """A field that is an option of the command line, and a key of a settings file. ``more``: fields of its ``Setting``."""
    return field(default=default, metadata={"help": help, **more})


def rare(default: Any, help: str, **more: Any) -> Any:
    """A field that is set only in a file or with --set."""
    return option(default, help, rare=True, **more)


def argument(default: Any, help: str, **more: Any) -> Any:
    """A field that is a positional argument."""
    return option(default, help, positional=True, **more)


@dataclass(frozen=True, slots=True)
class Within:
    """The range of a number, as in ``Annotated[int, Within(1, 64)]``.

    Attributes:
        least, most: the bounds, inclusive; ``ABOVE_0`` leaves out 0.
        words: the range in error messages; by default derived from the bounds.
    """

    least: float
    most: float = math.inf
    words: str = ""

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most  # False for NaN

    def __str__(self) -> str:
        return self.words or in_words(self.least, self.most)


MOST = (1 << 31) - 1
"""Largest signed number of 32 bits, the upper bound of counts. More of anything does not fit into memory."""
Share = Annotated[float, Within(ABOVE_0, 1)]
Count = Annotated[int, Within(1, MOST, f"1 or more, up to {MOST}")]
MAX_THREADS = 1024
Threads = Annotated[int, Within(0, MAX_THREADS, f"between 0 (every core) and {MAX_THREADS}")]


def check_fields(config: Any, of: str = "") -> None:
    """Check and convert the fields of a dataclass by their annotations: numpy's numbers become Python's, and lists become tuples.

    In error messages, ``of`` follows the name of a field. Supported types are int, float, bool, str, ``Literal`` of strings,
    dataclasses, tuples of these (of any or of a fixed length), and unions of two supported types. ``Annotated`` holds the range of
    a number or of a tuple's length, or the choices of a str: ``Annotated[str, ("a", "b")]``. Fields of other types are not
    checked.

    Raises:
        InvalidArgument: a value is of another type or out of its range.
    """
    for name, hint in _hints(type(config)).items():  # type: ignore[arg-type]  # types are hashable
        object.__setattr__(config, name, _checked(name, getattr(config, name), hint, of))


class Checked:
    """Base of dataclasses that check their fields with ``check_fields``, and nothing else, when they are made."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check_fields(self)


def from_json(kind: type[T], values: object, what: str) -> T:
    """The dataclass ``kind`` from a JSON object. Reads nested dataclasses, and tuples and mappings of them, too.

    ``what`` names the object in messages. Raises InvalidArgument if it is no object, or a field is unknown, missing or invalid.
    """
    every = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    names = ", ".join(every)
    if not isinstance(values, Mapping):
        raise InvalidArgument(Field(what), f" is of type {type(values).__name__}; it must be an object with {names}")
    check_keys(what, values, list(every))
    needed = [name for name, each in every.items() if each.default is each.default_factory is MISSING]
    if missing := [name for name in needed if name not in values]:
        raise InvalidArgument(Field(what), f" has no {missing[0]}; it needs {', '.join(needed)}")
    hints = _hints(kind)  # type: ignore[arg-type]  # types are hashable
    found = {name: _read(hints[name], value, f"{what}: {name}") for name, value in values.items()}
    try:
        return kind(**found)
    except InvalidArgument as error:
        error.extend(before=f"{what}: ")
        raise


def read_object(path: Path, what: str, advice: str, most_bytes: int = 1 << 26) -> dict[str, Any]:
    """The JSON object in a file. ``what``: the file's name in error messages. ``advice``: the next step in error messages.

    Raises:
        NotFound: the file cannot be read.
        Corruption: the file is no JSON object, or is larger than ``most_bytes``.
    """
    try:
        content = read_bounded(path, most_bytes)
    except OSError as error:
        kind = Corruption if error.errno == errno.EFBIG else NotFound
        raise kind(Field(what), f": cannot be read ({error.strerror}); {advice}") from error
    try:
        found = json.loads(content.removeprefix(BOM_UTF8))
    except (ValueError, RecursionError) as error:
        raise Corruption(f"{what}: no JSON ({error}); {advice}") from error
    if not isinstance(found, dict):
        raise Corruption(f"{what}: holds a {type(found).__name__}, no object; {advice}")
    return found


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    """The annotation of each field of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def _member(hint: Any, value: Any) -> Any:
    """The member of the union ``hint`` that fits ``value``, or the first; ``hint`` itself if it is no union."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    members = get_args(hint)
    fitting = tuple if isinstance(value, tuple | list) else type(value)
    return next((each for each in members if fitting in (each, get_origin(each))), members[0])


def _checked(name: str, value: Any, hint: Any, of: str) -> Any:
    kind, within = _member(hint, value), None
    if get_origin(kind) is Annotated:
        kind, within = get_args(kind)
    if get_origin(kind) is tuple:
        items, kinds = listed(name + of, value, "values"), get_args(kind)
        if within is not None and len(items) not in within:
            raise InvalidArgument(Field(name), f"{of} has {len(items)} values; their number must be {within}")
        if kinds == (int, ...) and {*map(type, items)} <= {int}:
            return items  # checking 65,000 ints one by one would block other threads for 0.1 s
        kinds = (kinds[0],) * len(items) if kinds[-1] is Ellipsis else kinds
        if len(items) != len(kinds):
            raise InvalidArgument(Field(name), f"{of} has {len(items)} values; it must have {len(kinds)}")
        return tuple(_checked(f"{name}[{place}]", each, kinds[place], of) for place, each in enumerate(items))
    if kind is str:
        if within is not None:
            check_choice(name, value, within, of)
        return text(name + of, value)
    if kind in (int, float):
        found = whole_number(name + of, value) if kind is int else number(name + of, value)
        if within is not None and found not in within:
            raise InvalidArgument(Field(name), f"{of} is {found}; it must be {within}")
        return found
    if kind is bool and not isinstance(value, bool):
        raise InvalidArgument(Field(name), f"{of} is {value!r}; it must be true or false")
    if get_origin(kind) is Literal:
        check_choice(name, value, get_args(kind), of)
    if isinstance(kind, type) and is_dataclass(kind) and not isinstance(value, kind):
        raise InvalidArgument(Field(name), f"{of} is {value!r}; it must be a {kind.__name__}")
    return value


def _read(hint: Any, value: Any, name: str) -> Any:
    kind = _member(hint, value)
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if isinstance(kind, type) and is_dataclass(kind):
        return from_json(kind, value, name)
    if get_origin(kind) is Mapping and isinstance(value, Mapping):
        return {key: _read(get_args(kind)[1], each, f"{name}: {key}") for key, each in value.items()}
    if get_origin(kind) is not tuple:
        return value
    items, of = listed(name, value, "values"), get_args(kind)[0]
    return tuple(_read(of, each, f"{name}[{place}]") for place, each in enumerate(items))


def parse_toml(text: str) -> dict[str, Any]:
    """The table that ``text`` holds. Raises ValueError if it is no TOML."""
    table: dict[str, Any] = tomllib.loads(text)
    return table
