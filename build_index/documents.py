"""Parses a block into documents. Runs in the tokenizing processes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from suffolk.build_index.block import Lines, Texts
from suffolk.build_index.options import BuildOptions
from suffolk.datastore.documents import NO_METADATA, Metadata
from suffolk.datastore.errors import InvalidArgument

MAX_TEXT_CHARACTERS = 1 << 20
REPLACEMENT = "\ufffd"


@dataclass(frozen=True, slots=True)
class Documents:
    """Texts with their sources and metadata, their size in UTF-8, and the number of U+FFFD that replaced invalid UTF-8."""

    sources: list[str]
    metadata: list[Metadata]
    texts: list[str]
    text_bytes: int
    replaced: int


def parse_documents(payload: Lines | Texts, options: BuildOptions) -> Documents:
    """The documents of a block of lines or texts, in order. Texts of more than 2^20 characters become several.

    Raises:
        InvalidArgument: a line is not a JSON object, lacks the field, or has no text in it; the message names the line.
    """
    if isinstance(payload, Lines):
        payload = _from_lines(payload, options)
    sources: list[str] = []
    metadata: list[Metadata] = []
    texts: list[str] = []
    text_bytes = replaced = 0
    for (source, raw), kept in zip(payload.documents, payload.metadata or repeat(NO_METADATA), strict=False):
        text, size, bad = _clean(raw)
        text_bytes += size
        replaced += bad
        for piece in _cut(text):
            sources.append(source)
            metadata.append(kept)
            texts.append(piece)
    return Documents(sources, metadata, texts, text_bytes, replaced)


def _from_lines(lines: Lines, options: BuildOptions) -> Texts:
    text_path = options.text_field.split(".")
    id_path = options.id_field.split(".") if options.id_field else None
    found: list[tuple[str, str | bytes]] = []
    metadata: list[Metadata] = []
    for number, line in enumerate(lines.data.split(b"\n"), lines.first_line):
        if not line or line.isspace():
            continue
        place = f"{lines.path}:{number}"
        record, bad = _parse_line(line, place)
        text = _field(record, text_path, options.text_field)
        if not isinstance(text, str):
            raise InvalidArgument(_no_text(place, options.text_field, text, record))
        if id_path is not None:
            name = _field(record, id_path, str(options.id_field))
            if name is None:
                raise InvalidArgument(
                    f"{place}: no field '{options.id_field}' (--id-field); give the name of one, or none"
                )
            place = f"{lines.path}#{name}"
        found.append((place, text if not bad else _Repaired(text, bad)))
        if options.metadata:
            metadata.append(keep_metadata(record, options.metadata))
    return Texts(tuple(found), tuple(metadata))


def keep_metadata(record: Any, fields: tuple[str, ...]) -> Metadata:
    """The values of ``fields`` in a record. Missing and null fields are left out."""
    found = {name: _field(record, name.split("."), name) for name in fields}
    return {name: value for name, value in found.items() if value is not None}


class _Repaired(str):
    """A text whose line held invalid UTF-8. ``bad`` is the number of replaced sequences."""

    __slots__ = ("bad",)
    bad: int

    def __new__(cls, text: str, bad: int) -> _Repaired:
        repaired = super().__new__(cls, text)
        repaired.bad = bad
        return repaired


def _parse_line(line: bytes, place: str) -> tuple[Any, int]:
    text, bad = _decode(line)
    try:
        return json.loads(text), bad
    except (ValueError, RecursionError) as error:
        raise not_json(place, error) from error


def not_json(place: str, error: ValueError | RecursionError) -> InvalidArgument:
    """The error for a line that ``json.loads`` refuses."""
    if isinstance(error, json.JSONDecodeError):
        return InvalidArgument(f"{place}: not a JSON value ({error}); every line of a .jsonl file is one JSON object")
    problem = "is nested too deep" if isinstance(error, RecursionError) else "holds a number of too many digits"
    return InvalidArgument(
        f"{place}: not a JSON value that can be read: it {problem}; correct the line or leave it out"
    )


def _field(record: Any, path: list[str], name: str) -> Any:
    """The value of a field; None if it is missing. The name itself may contain dots."""
    if isinstance(record, dict) and name in record:
        return record[name]
    for part in path:
        if not isinstance(record, dict):
            return None
        record = record.get(part)
    return record


def _no_text(place: str, field: str, value: Any, record: Any) -> str:
    if not isinstance(record, dict):
        return f"{place}: a JSON {type(record).__name__}, not an object; every line of a .jsonl file is one object"
    if value is not None or field in record:
        return f"{place}: field '{field}' holds {type(value).__name__}, not text; name the text field with --text-field"
    fields = ", ".join(sorted(map(str, record))[:12]) or "none"
    return f"{place}: no field '{field}'; the line has {fields}; name the text field with --text-field"


def _clean(raw: str | bytes) -> tuple[str, int, int]:
    """Valid text, its size in UTF-8, and the number of replaced sequences."""
    if isinstance(raw, bytes):
        text, bad = _decode(raw)
        return text, len(raw), bad
    bad = getattr(raw, "bad", 0)
    try:
        return str(raw), len(raw.encode()), bad
    except UnicodeEncodeError:  # JSON may spell half of a surrogate pair
        text = raw.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text, len(text.encode()), bad + text.count(REPLACEMENT) - raw.count(REPLACEMENT)


def _decode(data: bytes) -> tuple[str, int]:
    try:
        return data.decode(), 0
    except UnicodeDecodeError:
        text = data.decode(errors="replace")
        return text, text.count(REPLACEMENT) - data.count(REPLACEMENT.encode())


def _cut(text: str) -> list[str]:
    """``text`` in pieces of at most 2^20 characters, cut after a line end where there is one."""
    pieces = []
    while len(text) > MAX_TEXT_CHARACTERS:
        cut = text.rfind("\n", 0, MAX_TEXT_CHARACTERS) + 1 or MAX_TEXT_CHARACTERS
        pieces.append(text[:cut])
        text = text[cut:]
    pieces.append(text)
    return pieces
