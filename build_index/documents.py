"""Parses a block into documents. Runs in the tokenizing processes."""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from suffolk.build_index.block import Lines, NamedOrigin, Records, Texts
from suffolk.build_index.conversation import FIELDS
from suffolk.build_index.foreign_chats import record_command
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.read_lines import no_number
from suffolk.build_index.record_fields import has_field, json_name, keep_metadata, name_record, read_field
from suffolk.build_index.records import LeftOut, RecordRules, is_chat, is_recording, read_chat, read_recording
from suffolk.build_index.skipped import Skipped
from suffolk.datastore.documents import NO_METADATA, Metadata, checked_metadata
from suffolk.datastore.errors import InvalidArgument

MAX_TEXT_CHARACTERS = 1 << 20
REPLACEMENT = "\ufffd"


@dataclass(slots=True)
class Documents:
    """The documents of a block.

    Attributes:
        origins: source and metadata of each document.
        texts: the text of each document; empty if the document consists of recorded tokens (``records.read_recording``).
        recorded: map from a document's index to its recorded tokens.
        text_bytes: size of the texts in UTF-8, and of recorded tokens as 32-bit ids.
        replaced: number of invalid UTF-8 sequences, each replaced by U+FFFD.
        left_out: records that yield no document.
    """

    origins: list[NamedOrigin] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    recorded: dict[int, list[int]] = field(default_factory=dict)
    text_bytes: int = 0
    replaced: int = 0
    left_out: list[Skipped] = field(default_factory=list)

    def add(self, source: str, metadata: Metadata, content: str | bytes | list[int], replaced: int = 0) -> None:
        """Add a document; a text of more than a million characters becomes several.

        ``replaced``: number of invalid UTF-8 sequences that were replaced in ``content`` before this call.
        """
        if isinstance(content, list):
            self.recorded[len(self.texts)] = content
            self.text_bytes += 4 * len(content)
            pieces = [""]
        else:
            text, size, bad = _clean(content)
            self.text_bytes += size
            self.replaced += bad + replaced
            pieces = _cut(text)
        self.texts += pieces
        self.origins += [(source, metadata)] * len(pieces)


TEXTS_ALONE = RecordRules()


def parse_documents(
    payload: Lines | Records | Texts, options: BuildOptions, rules: RecordRules = TEXTS_ALONE
) -> Documents:
    """The documents of a block, in order. Texts of more than 2^20 characters become several.

    Args:
        rules: how conversations and recorded tokens are read.

    Raises:
        InvalidArgument: ``on_error`` is "stop", and a line is not JSON, or holds no text, conversation or recording that can be
            read. The message names the line. With ``on_error`` "skip", the line is left out.
    """
    documents = Documents()
    if isinstance(payload, Texts):
        for source, raw in payload.documents:
            documents.add(source, NO_METADATA, raw)
        documents.left_out += payload.left_out
        return documents
    for place, raw in _raw_records(payload):
        try:
            reason = _add_record(documents, payload.path, place, raw, options, rules)
        except InvalidArgument as error:
            if options.on_error == "stop":
                raise InvalidArgument(f"{error}; or leave such records out with --on-error skip") from error
            reason = str(error).removeprefix(place).removeprefix(":").strip()
        if reason:
            documents.left_out.append(Skipped(place, reason))
    return documents


def _add_record(
    documents: Documents, path: str, place: str, raw: Any, options: BuildOptions, rules: RecordRules
) -> str:
    """Add the document of a record, and return "". If it has none, return the reason. Raises the errors of ``parse_documents``."""
    record, bad = _parse_record(raw, place)
    content = _content(record, place, options, rules)
    if isinstance(content, LeftOut):
        return content.reason
    source = name_record(record, place, path, options)
    kept = checked_metadata(place, keep_metadata(record, options.metadata)) if options.metadata else NO_METADATA
    documents.add(source, kept, content, bad)
    return ""


def holds_content(record: Any, options: BuildOptions) -> bool:
    """Whether a record is a text, or has a field that may hold its content, in the form that ``options`` select."""
    form = options.records
    if form in ("auto", "text") and (isinstance(record, str) or has_field(record, options.text_field)):
        return True
    return (form in ("auto", "recording") and is_recording(record)) or (form in ("auto", "chat") and is_chat(record))


def _content(record: Any, place: str, options: BuildOptions, rules: RecordRules) -> str | bytes | list[int] | LeftOut:
    """The text or the recorded tokens of a record, in the form that ``options`` select."""
    form = options.records
    if isinstance(record, str) and form in ("auto", "text"):
        return record
    text = read_field(record, options.text_field) if form in ("auto", "text") else None
    if isinstance(text, str | bytes):
        return text
    if form == "recording" or (form == "auto" and is_recording(record)):
        if not is_recording(record):
            raise InvalidArgument(no_content(place, options, record))
        return read_recording(record, rules, place)
    chat = read_chat(record, rules, place) if form in ("auto", "chat") else None
    if chat is None and text is None and form != "chat" and has_field(record, options.text_field):
        return LeftOut(f"field '{options.text_field}' is null or NaN")
    if chat is None:
        null = [name for name in FIELDS if name in record] if isinstance(record, dict) and form != "text" else []
        if null and text is None:
            return LeftOut(f"field '{null[0]}' is null or NaN")
        raise InvalidArgument(no_content(place, options, record))
    return chat


def read_records(payload: Lines | Records) -> Iterator[tuple[str, Any, int]]:
    """Yield the place and content of each record, and how many invalid UTF-8 sequences in it were replaced.

    Raises:
        InvalidArgument: a line is not JSON; the message names it.
    """
    for place, raw in _raw_records(payload):
        yield place, *_parse_record(raw, place)


def _raw_records(payload: Lines | Records) -> Iterator[tuple[str, Any]]:
    """Yield the place of each record, and its row or its line."""
    if isinstance(payload, Records):
        yield from ((f"{payload.path}:{number}", row) for number, row in enumerate(payload.rows, payload.first_row))
        return
    for number, line in enumerate(payload.data.split(b"\n"), payload.first_line):
        if line and not line.isspace():
            yield f"{payload.path}:{number}", line.removeprefix(BOM_UTF8)  # files with a mark may be joined


def _parse_record(raw: Any, place: str) -> tuple[Any, int]:
    if not isinstance(raw, bytes):
        return raw, 0
    text, bad = _decode(raw)
    try:
        return json.loads(text, parse_constant=no_number), bad
    except (ValueError, RecursionError) as error:
        raise not_json(place, error) from error


def not_json(place: str, error: ValueError | RecursionError) -> InvalidArgument:
    """The error for a line that ``json.loads`` refuses."""
    if isinstance(error, json.JSONDecodeError):
        return InvalidArgument(f"{place}: not a JSON value ({error}); every record is one JSON object")
    problem = "is nested too deep" if isinstance(error, RecursionError) else "holds a number with too many digits"
    return InvalidArgument(
        f"{place}: not a JSON value that can be read: it {problem}; correct the line or leave it out"
    )


def no_content(place: str, options: BuildOptions, record: Any) -> str:
    """Why a record has no content, and what to do."""
    field = options.text_field
    value = read_field(record, field)
    if not isinstance(record, dict):
        return f"{place}: {json_name(record)}, not an object; every record is one JSON object"
    if options.records == "recording":
        return f"{place}: not a recording; name a file that --record has written"
    fields = ", ".join(sorted(map(str, record))[:12]) or "none"
    if options.records == "chat":
        problem, advice = f"no conversation; the record has {fields}", "'messages' or 'conversations' hold one"
    elif value is not None:
        problem, advice = (
            f"field '{field}' holds {json_name(value)}, not text",
            "name another field with --text-field"
            + ", or write records, as pandas does with orient='records', lines=True" * isinstance(value, dict),
        )
    else:
        problem, advice = f"no field '{field}'; the record has {fields}", "name the text field with --text-field"
    if (command := record_command(record, field)) and options.records != "text":
        advice = f"write the conversations as field 'messages', as jq -c '{command}' does with JSON"
    return f"{place}: {problem}; {advice}"


def _clean(raw: str | bytes) -> tuple[str, int, int]:
    """Valid text, its size in UTF-8, and the number of replaced sequences."""
    if isinstance(raw, bytes):
        raw = raw.removeprefix(BOM_UTF8)
        text, bad = _decode(raw)
        return text, len(raw), bad
    try:
        return raw, len(raw.encode()), 0
    except UnicodeEncodeError:  # JSON may spell half of a surrogate pair
        text = raw.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return text, len(text.encode()), text.count(REPLACEMENT) - raw.count(REPLACEMENT)


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
