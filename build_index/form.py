"""Finds the form of a file by its first bytes. Its name decides only where the bytes allow several forms."""

from __future__ import annotations

import json
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from string import digits
from typing import Any

from suffolk.build_index.arrow_file import FILE, STREAM, STREAM_ENDINGS
from suffolk.build_index.documents import REPLACEMENT, holds_content, no_content
from suffolk.build_index.foreign_chats import file_command
from suffolk.build_index.input_file import find_packing, unpack_start, without_ending
from suffolk.build_index.one_object import SAMPLE_RECORDS, are_texts, closed, is_record, object_problem
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.read_lines import DAMAGED, array_elements, no_number
from suffolk.build_index.read_parquet import unread_table
from suffolk.datastore.errors import Corruption

HEAD_BYTES, MORE_BYTES = 64 << 10, 8 << 20
"""First bytes that are inspected: HEAD_BYTES, or MORE_BYTES if the first record does not end within HEAD_BYTES."""
BINARY_BYTES = 1024
ASCII_SHARE = 3 / 4
"""Bytes without a byte order mark count as UTF-16 if more than this share of their 16-bit characters is ASCII."""
FEW_INVALID, INVALID_SHARE = 16, 1 / 4
"""Invalid UTF-8 sequences that a text may have, as a number and as a share of its characters. Text in a Cyrillic or Japanese
encoding has more."""
LINE_ENDINGS = (".jsonl", ".ndjson", ".jsonlines")
NAMED_KINDS = {".parquet": "parquet", ".npy": "npy", ".bin": "bin"}
"""Kinds of files that are read by name, unless the first bytes show another format. Their readers report damage."""
MAGIC = {b"PAR1": "parquet", FILE: "arrow", b"\x93NUMPY": "npy"}
LFS_POINTER = b"version https://git-lfs"
UNREAD = {
    BOM_UTF32_LE: "UTF-32 text (convert it to UTF-8)",  # its first bytes are also the next entry's
    BOM_UTF16_LE: "UTF-16 text (convert it to UTF-8)",
    BOM_UTF16_BE: "UTF-16 text (convert it to UTF-8)",
    BOM_UTF32_BE: "UTF-32 text (convert it to UTF-8)",
    b"PARE": "encrypted Parquet file (decrypt it)",
    b"\x1f\x9d": "compress stream (unpack it)",
    b"PK\x03\x04": "zip archive (unpack it)",
    b"7z\xbc\xaf\x27\x1c": "7z archive (unpack it)",
    b"\x04\x22\x4d\x18": "lz4 stream (unpack it)",
    b"%PDF-": "PDF (convert it to text)",
}
"""First bytes -> why a file with them is not read."""
NO_TEXT = "JSON records without a text (see --text-field and --records)"
TAR = (257, b"ustar")
EMPTY, DESCRIPTION = NO_TEXT_AT_ALL = ("empty", "description of a data set")
"""Reasons why a file without text is not read."""
DESCRIPTIONS = {
    "state.json": ("_fingerprint",),
    "dataset_info.json": ("features",),
    "dataset_dict.json": ("splits",),
    "dataset_infos.json": ("features",),
    "index.json": ("column_encodings", "chunk_bytes"),
    "_committed_": ("added",),
    "_committed_vacuum": ("removed",),
}
"""Name of a file without the number at its end -> keys, one of which the file has. ``datasets``, streams of shards and Databricks
have such files beside their data."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a file.

    Attributes:
        kind, packing: see ``InputFile``; no kind if the file is not read.
        problem: why the file is not read; empty if it is.
        lacks: what the first JSON record or the table lacks, if there is no text. The file is then left out if it has a
            ``problem``, else read as plain text.
    """

    kind: str
    packing: str = ""
    problem: str = ""
    lacks: str = ""


def find_form(path: str, read_start: Callable[[int], bytes], options: BuildOptions) -> Form:
    """The form of the file ``path``.

    Args:
        read_start: takes a number of bytes, and returns that many first bytes of the file, or all. Its errors and those of
            ``unread_table`` are raised.
    """
    for size in (HEAD_BYTES, MORE_BYTES):
        head = read_start(size)
        packing = find_packing(head)
        data = unpack_start(packing, head, size) if packing else head
        if packing and (inner := find_packing(data)):  # a tool compressed what was compressed already
            packing, data = f"{packing}+{inner}", unpack_start(inner, data, size)
        whole = len(head) < size and len(data) < size
        form = _find_form(path, data, bool(packing), whole, options) if data or whole else None
        if form is not None:
            break
    form = form or _by_name(without_ending(path))
    if not head:
        return replace(form, problem=EMPTY)
    if packing and form.kind in (*NAMED_KINDS.values(), "arrow"):
        return Form("", problem=f"compressed {form.kind} file (unpack it)")
    if form.kind in ("parquet", "arrow"):
        try:
            problem, lacks = unread_table(path, form.kind, options)
        except Corruption:
            if options.on_error == "stop":
                raise
            return form  # the reader leaves it out, and says why
        return replace(form, problem=problem, lacks=lacks)
    return replace(form, packing=packing)


def _by_name(name: str) -> Form:
    """The form of a file whose bytes allow several forms."""
    kind = next((kind for ending, kind in NAMED_KINDS.items() if name.endswith(ending)), "text")
    return Form("lines" if name.endswith(LINE_ENDINGS) else kind)


def _find_form(path: str, data: bytes, packed: bool, whole: bool, options: BuildOptions) -> Form | None:
    """The form of a file that begins with ``data`` when unpacked. ``whole``: ``data`` is all of it. None: more is needed
    to tell."""
    name = without_ending(path)
    if data.startswith(LFS_POINTER):
        return Form("", problem="Git LFS pointer ('git lfs pull' fetches it)")
    is_stream = data.startswith(STREAM) and name.endswith(STREAM_ENDINGS)
    magic_kind = "arrow" if is_stream else next((kind for magic, kind in MAGIC.items() if _begins(data, magic)), "")
    kind = magic_kind or _by_name(name).kind
    if magic_kind or kind == "bin":  # token ids may begin with any bytes
        return Form(kind)
    if problem := next((problem for magic, problem in UNREAD.items() if _begins(data, magic)), ""):
        return Form("", problem=problem)
    if kind in NAMED_KINDS.values():
        return Form(kind)
    if data[TAR[0] :].startswith(TAR[1]):
        return Form("", problem="tar archive (unpack it)")
    if b"\0" in (start := data[:BINARY_BYTES]):
        if data.startswith(STREAM):
            return Form("", problem=f"binary, or an Arrow stream whose name lacks {STREAM_ENDINGS[0]}")
        return Form("", problem=UNREAD[BOM_UTF16_LE] if _is_utf16(start) else "binary")
    text = data.removeprefix(BOM_UTF8).decode(errors="replace").lstrip()
    invalid = text.count(REPLACEMENT) - data.count(REPLACEMENT.encode())
    if invalid > max(FEW_INVALID, INVALID_SHARE * len(text)):
        return Form("", problem="bytes that are not UTF-8 (convert text to UTF-8)")
    if any(f'"{mark}"' in text for mark in DESCRIPTIONS.get(name.rpartition("/")[2].rstrip(digits), ())):
        return Form("", problem=DESCRIPTION)
    is_array = text[:1] == "["
    starts = ("{", "[", '"') if name.endswith(".json") else ("{", "[")  # of elements; ["a"] may begin a text
    if text[:1] != "{" and not (is_array and text[1:].lstrip()[:1] in starts):
        return Form(kind)
    found = _elements(text[1:]) if is_array else _records_of_lines(text, whole)
    series = _series(text) if found == [None] else []  # objects after each other may take several lines each
    found = series or found
    undecided = not whole and found in ([], [None])
    if undecided and len(data) < MORE_BYTES:
        return None
    is_lone = len(found) == 1 and isinstance(found[0], dict)
    holds = any(holds_content(record, options) for record in found)
    if is_lone and not is_array:
        holds = holds and is_record(found[0], options, bool(series))
    if not holds and (command := file_command(found, is_array)):
        return Form("", problem=f"JSON of conversations in another form (jq -c '{command}' writes them as lines)")
    lone = found[0] if is_lone else closed(text) if undecided and not is_array else None
    if not holds and (problem := object_problem(lone, options, is_array)):
        return Form("", problem=problem)
    if found and is_array and all(isinstance(record, str) for record in found):
        return Form("array" if holds and (options.records == "text" or are_texts(found)) else kind)
    if not found or not all(isinstance(record, dict) for record in found):
        return Form(kind)
    if holds:
        return Form("array" if is_array or series else "lines")
    if kind != "lines" and is_lone and not is_array:
        return Form(kind)  # one object, such as a file of settings
    is_source = kind == "text" and not packed
    return Form(kind, problem="" if is_source else NO_TEXT, lacks=no_content(f"{path}:1", options, found[0]))


def _begins(data: bytes, magic: bytes) -> bool:
    """Whether ``data`` begins with ``magic``. A text may begin with the same letters, but it has no zero bytes."""
    return data.startswith(magic) and (not magic.isalnum() or b"\0" in data[:BINARY_BYTES])


def _is_utf16(start: bytes) -> bool:
    """Whether bytes that hold zeros are UTF-16 without a byte order mark, and most of their characters are ASCII."""
    for first, second in ((start[::2], start[1::2]), (start[1::2], start[::2])):
        if len(first) > 3 and min(first) >= ord("\t") and second.count(0) > ASCII_SHARE * len(second):
            return True
    return False


def _elements(text: str) -> list[Any]:
    """The first elements of an array without its opening bracket, or of a series of objects."""
    found = islice(array_elements(text), SAMPLE_RECORDS)
    return [record for start, end, record in found if end > start and record is not DAMAGED]


def _series(text: str) -> list[Any]:
    """The first objects of a series; empty if something else follows the first one."""
    *found, (end, _, _) = islice(array_elements(f"{text}\n"), SAMPLE_RECORDS + 1)
    is_series = len(found) > 1 or not text[end:].lstrip() or text[end:].lstrip()[:1] == "{"
    return [record for _, _, record in found if record is not DAMAGED] if is_series else []


def _records_of_lines(text: str, whole: bool) -> list[Any]:
    """The records of the first lines; [None] if the first line is not JSON, or the second is neither a record nor a damaged
    record."""
    lines = text.split("\n") if whole else text.split("\n")[:-1]
    records: list[Any] = []
    for line in islice(filter(str.strip, lines), SAMPLE_RECORDS):
        try:
            records.append(json.loads(line.removeprefix("\ufeff"), parse_constant=no_number))
        except (ValueError, RecursionError):
            is_damaged = bool(records) and line.startswith('{"')
            return records if len(records) > 1 or is_damaged else [None]
    return records
