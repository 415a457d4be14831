"""Values and column names of Parquet in the form that JSON records have."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, time
from decimal import Decimal
from typing import Any
from uuid import UUID


class Columns:
    """The names of the columns of a file, and dotted names of the fields of nested ones. A map may have any field."""

    def __init__(self, schema: Any) -> None:
        """``schema``: pyarrow's."""
        self._names, self._maps = set[str](), set[str]()
        fields = [(field.name, field.type) for field in schema]
        while fields:
            name, kind = fields.pop()
            self._names.add(name)
            if str(kind).startswith("struct"):
                fields += [(f"{name}.{field.name}", field.type) for field in kind]
            elif str(kind).startswith("map"):
                self._maps.add(name)

    def __contains__(self, name: str) -> bool:
        return name in self._names or self.stored(name) != name

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names))

    def stored(self, name: str) -> str:
        """What is read for ``name``: of a field of a map the whole map."""
        return next((each for each in self._maps if name.startswith(f"{each}.") and name not in self._names), name)


def plain_rows(batch: Any) -> list[dict[str, Any]]:
    """The rows of ``batch`` as objects."""
    for index, column in enumerate(batch.columns):
        kind = _readable(column.type)
        if kind != column.type:
            batch = batch.set_column(index, batch.schema.names[index], column.cast(kind, safe=False))
    return [{name: _plain(value) for name, value in row.items()} for row in batch.to_pylist()]


def _readable(kind: Any) -> Any:
    """``kind`` with microseconds in place of nanoseconds, which Python's times do not have."""
    import pyarrow

    if pyarrow.types.is_timestamp(kind) and kind.unit == "ns":
        return pyarrow.timestamp("us", kind.tz)
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([field.with_type(_readable(field.type)) for field in kind])
    return kind


def _plain(value: Any) -> Any:
    """``value`` as JSON has it: maps as objects, times and decimals as text, NaN, which marks a missing number, as null."""
    if isinstance(value, dict):
        return {name: _plain(field) for name, field in value.items()}
    if isinstance(value, list):
        is_map = bool(value) and all(type(each) is tuple for each in value)
        return {name: _plain(field) for name, field in value} if is_map else [_plain(each) for each in value]
    if isinstance(value, float):
        return None if value != value else value
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | UUID) else value
