"""Reads fields of a record: its id, its metadata, and values of nested objects."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Any

from suffolk.build_index.options import BuildOptions
from suffolk.datastore.documents import Metadata
from suffolk.datastore.errors import InvalidArgument

_JSON_NAMES = {
    bool: "true or false",
    dict: "an object",
    float: "a number",
    int: "a number",
    list: "an array",
    str: "a text",
    type(None): "null or NaN",
}
_CONTROL = re.compile(r"[\0-\x08\x0e-\x1f\x7f]")
"""Characters that occur in the bytes of numbers and keys, but not in texts."""


def name_record(record: Any, place: str, path: str, options: BuildOptions) -> str:
    """The source of a record: its place, or its id after ``path``. Raises InvalidArgument: it has no id."""
    if options.id_field is None:
        return place
    name = _as_text(read_field(record, options.id_field))
    if name is None:
        raise InvalidArgument(
            f"{place}: no field '{options.id_field}' (--id-field); name a field that every record has, or leave the option out"
        )
    if not isinstance(name, str | int | float):
        raise InvalidArgument(
            f"{place}: field '{options.id_field}' holds {json_name(name)}, not a text or a number; name another one with --id-field"
        )
    is_whole = isinstance(name, float) and name.is_integer()  # tables hold whole numbers as floats if one is null
    return f"{path}#{int(name) if is_whole else name}"


def keep_metadata(record: Any, fields: tuple[str, ...]) -> Metadata:
    """The values of ``fields`` in a record. Missing and null fields are left out."""
    found = {name: _as_text(read_field(record, name)) for name in fields}
    return {name: value for name, value in found.items() if value is not None}


def read_field(record: Any, name: str) -> Any:
    """The value of a field; None if it is missing. A dotted name reads nested objects, unless it is the name of a field.

    Names in objects may have dots too, as in ``{"attributes": {"llm.prompt": ...}}`` of OpenTelemetry.
    """
    if not isinstance(record, dict):
        return None
    if name in record:
        return record[name]
    found = (read_field(record[outer], inner) for outer, inner in _splits(name) if outer in record)
    return next((value for value in found if value is not None), None)


def has_field(record: Any, name: str) -> bool:
    """Whether a record has a field, even if it or an object around it is null. A dotted name reads nested objects."""
    if not isinstance(record, dict):
        return False
    inside = ((record[outer], inner) for outer, inner in _splits(name) if outer in record)
    return name in record or any(value is None or has_field(value, inner) for value, inner in inside)


def top_name(name: str, names: Collection[str]) -> str:
    """The name in ``names`` that holds the field ``name``: ``name`` itself, or its part before a dot. If ``names`` has none of
    these, the part before the first dot."""
    outers = [outer for outer, _ in _splits(name)]
    return next((each for each in (name, *outers) if each in names), (*outers, name)[0])


def json_name(value: Any) -> str:
    """The kind of a value in a record, as JSON names it."""
    return _JSON_NAMES.get(type(value), type(value).__name__)


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """The names before and after each dot of ``name``."""
    return ((name[: dot.start()], name[dot.end() :]) for dot in re.finditer(r"\.", name))


def _as_text(value: Any) -> Any:
    """The text of bytes, because Impala and older Spark write texts to Parquet as bytes. Other bytes and other values are
    unchanged."""
    with suppress(UnicodeDecodeError):
        text = value.decode() if isinstance(value, bytes) else ""
        return value if not text or _CONTROL.search(text) else text
    return value
