"""Checks a JSON file of one object. The object may be one text, hold records in a field, or hold a table."""

from __future__ import annotations

import json
import re
from typing import Any

from suffolk.build_index.documents import holds_content
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.record_fields import read_field

SAMPLE_RECORDS = 20
TEXT_CHARACTERS = 40
"""Least mean length of texts that are documents. Shorter texts may be names and colours in a file of settings."""
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},"]')
"""Matches a JSON string, a mark between values, or the quote that begins a truncated string."""
_CLOSING = {"{": "}", "[": "]"}
_ROWS_OF_COLUMNS = ". as $t | .[{}] | keys_unsorted[] as $k | $t | map_values(.[$k])"
_ROWS_OF_SPLIT = ".columns as $c | .data[] | [$c, .] | transpose | map({(.[0]): .[1]}) | add"


def are_texts(values: list[str]) -> bool:
    """Whether the texts are long enough to be documents."""
    return sum(map(len, values)) >= TEXT_CHARACTERS * len(values)


def is_record(record: Any, options: BuildOptions, is_pretty: bool) -> bool:
    """Whether an object with content, alone in its file, is a record. Files of settings may have the same fields, but are not
    records.

    ``is_pretty``: whether the object takes several lines.
    """
    text = read_field(record, options.text_field)
    return text is None or (isinstance(text, str) and (not is_pretty or are_texts([text])))


def object_problem(record: Any, options: BuildOptions, is_array: bool) -> str:
    """Return why the file is not read. Empty if the object may be a text.

    ``record``: the only object of the file, or the only element of its array if ``is_array``.
    """
    each = "array of an object" if is_array else "object"
    waiting: list[tuple[tuple[str, ...], Any]] = [((), record)]
    for names, outer in waiting:  # the loop extends ``waiting``
        fields = outer.items() if isinstance(outer, dict) else ()
        lists = [name for name, value in fields if isinstance(value, list) and _are_records(value, options)]
        if lists:
            path = (*names, lists[0])
            command = f"{_path(path, is_array)}[]"
            return f"JSON {each} with records in field '{'.'.join(path)}' (jq -c '{command}' writes them as lines)"
        if rows := _rows(outer, options):
            command = f"{_path(names, is_array)} | {rows}" if names or is_array else rows
            return f"JSON {each} of rows or columns (jq -c '{command}' writes its rows as lines)"
        waiting += [((*names, name), value) for name, value in fields if isinstance(value, dict)]
    return ""


def _path(names: tuple[str, ...], is_array: bool) -> str:
    """The filter of jq for the value at ``names``."""
    path = "".join(f"[{json.dumps(name)}]" for name in names)
    return f".[]{path}" if is_array else f".{path}"


def closed(text: str) -> Any:
    """Parse the start of a truncated JSON value. Incomplete parts at its end are left out. None if nothing is left."""
    end, closing = 0, ""
    open_ones: list[str] = []
    for token in _TOKEN.finditer(text):
        mark = token.group()
        if mark == '"':
            break
        if mark in _CLOSING:
            open_ones.append(_CLOSING[mark])
        elif mark in ("]", "}") and open_ones:
            open_ones.pop()
        elif mark != ",":
            continue
        if not open_ones:
            break
        end, closing = token.end() - (mark == ","), "".join(reversed(open_ones))
    try:
        return json.loads(text[:end] + closing)
    except (ValueError, RecursionError):
        return None


def _rows(record: Any, options: BuildOptions) -> str:
    """The filter of jq for the rows of a table that pandas wrote; empty if ``record`` is no table of pandas."""
    if not isinstance(record, dict) or not record:
        return ""
    field = options.text_field
    columns, data = record.get("columns"), record.get("data")
    if isinstance(columns, list) and field in columns and isinstance(data, list):
        return _ROWS_OF_SPLIT
    column = record.get(field)
    if isinstance(column, dict | list) and all(type(other) is type(column) for other in record.values()):
        texts = list(column.values() if isinstance(column, dict) else column)
        if _are_cells(texts, list(column)):
            return _ROWS_OF_COLUMNS.format(json.dumps(field))
    rows = list(record.values())[:SAMPLE_RECORDS]
    if len(rows) > 1 and _are_records(rows, options):
        texts = [read_field(row, field) for row in rows]
        return ".[]" if _are_cells(texts, list(record)) or not any(texts) else ""
    return ""


def _are_cells(texts: list[Any], names: list[Any]) -> bool:
    """Whether ``texts`` are the cells of a text column: the texts are long, or their rows are numbered."""
    found = [text for text in texts if text is not None]
    if not found or not all(isinstance(text, str) for text in found):
        return False
    return are_texts(found) or all(isinstance(name, str) and name.isdecimal() for name in names)


def _are_records(values: list[Any], options: BuildOptions) -> bool:
    found = values[:SAMPLE_RECORDS]
    return bool(found) and all(isinstance(each, dict) and holds_content(each, options) for each in found)
