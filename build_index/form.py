"""Finds the form of a file by its first bytes. Its name decides only where the bytes allow several forms."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from suffolk.build_index.arrow_file import FILE, STREAM, STREAM_ENDING
from suffolk.build_index.documents import REPLACEMENT, holds_content, no_content
from suffolk.build_index.foreign_chats import file_command
from suffolk.build_index.input_file import find_packing, unpack_start, without_ending
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.read_lines import array_elements
from suffolk.build_index.read_parquet import unread_table

HEAD_BYTES, MORE_BYTES = 64 << 10, 8 << 20
"""Bytes that are looked at; the second number if the first record does not end within the first one."""
BINARY_BYTES = 1024
ASCII_SHARE = 3 / 4
"""Part of the characters of a UTF-16 text without a byte order mark that shows its form."""
FEW_INVALID, INVALID_SHARE = 16, 1 / 4
"""Invalid UTF-8 sequences that a text may have, and their part of its characters. A Cyrillic or Japanese encoding has more."""
SAMPLE_RECORDS = 20
TEXT_CHARACTERS = 40
"""Mean length of the texts of an array. An array of shorter ones is one document: names in a file of settings."""
LINE_ENDINGS = (".jsonl", ".ndjson", ".jsonlines")
NAMED_KINDS = {".parquet": "parquet", ".npy": "npy", ".bin": "bin"}
"""Kinds of files that are read by name even if they do not begin as they should. The reader names what is wrong."""
MAGIC = {b"PAR1": "parquet", FILE: "arrow", b"\x93NUMPY": "npy"}
LFS_POINTER = b"version https://git-lfs"
UNREAD = {
    BOM_UTF32_LE: "UTF-32 text (convert it to UTF-8)",  # begins as the next one
    BOM_UTF16_LE: "UTF-16 text (convert it to UTF-8)",
    BOM_UTF16_BE: "UTF-16 text (convert it to UTF-8)",
    BOM_UTF32_BE: "UTF-32 text (convert it to UTF-8)",
    b"PK\x03\x04": "zip archive (unpack it)",
    b"7z\xbc\xaf\x27\x1c": "7z archive (unpack it)",
    b"\x04\x22\x4d\x18": "lz4 stream (unpack it)",
    b"%PDF-": "PDF (convert it to text)",
}
"""First bytes -> why a file with them is not read."""
NO_TEXT = "JSON records without a text (see --text-field and --records)"
TAR = (257, b"ustar")
_LIST = re.compile(r'"([^"\\]*)"\s*:\s*\[\s*(?=\{)')
"""The name of a field that holds a list of objects."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a file.

    Attributes:
        kind, packing: see ``InputFile``; no kind if the file is not read.
        problem: why the file is not read; empty if it is.
        lacks: what the first JSON record lacks, if none of the first ones has a text. Then the records are not read as records.
    """

    kind: str
    packing: str = ""
    problem: str = ""
    lacks: str = ""


def find_form(path: str, read_start: Callable[[int], bytes], options: BuildOptions) -> Form:
    """The form of the file ``path``.

    Args:
        read_start: returns so many of its first bytes, or all. Its errors are raised, and those of ``unread_table``.
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
        return replace(form, problem="empty")
    if packing and form.kind in (*NAMED_KINDS.values(), "arrow"):
        return Form("", problem=f"compressed {form.kind} file (unpack it)")
    if form.kind in ("parquet", "arrow"):
        problem, lacks = unread_table(path, form.kind, options)
        return replace(form, problem=problem, lacks=lacks)
    return replace(form, packing=packing)


def _by_name(name: str) -> Form:
    """The form of a file whose bytes allow several."""
    kind = next((kind for ending, kind in NAMED_KINDS.items() if name.endswith(ending)), "text")
    return Form("lines" if name.endswith(LINE_ENDINGS) else kind)


def _find_form(path: str, data: bytes, packed: bool, whole: bool, options: BuildOptions) -> Form | None:
    """The form of a file that unpacks to ``data``, or to more if that is not ``whole``. None: more is needed to tell."""
    name = without_ending(path)
    if data.startswith(LFS_POINTER):
        return Form("", problem="Git LFS pointer ('git lfs pull' fetches it)")
    is_stream = data.startswith(STREAM) and name.endswith(STREAM_ENDING)
    magic_kind = "arrow" if is_stream else next((kind for magic, kind in MAGIC.items() if data.startswith(magic)), "")
    kind = magic_kind or _by_name(name).kind
    if magic_kind or kind == "bin":  # token ids may begin with any bytes
        return Form(kind)
    if problem := next((problem for magic, problem in UNREAD.items() if data.startswith(magic)), ""):
        return Form("", problem=problem)
    if kind in NAMED_KINDS.values():
        return Form(kind)
    if data[TAR[0] :].startswith(TAR[1]):
        return Form("", problem="tar archive (unpack it)")
    if b"\0" in (start := data[:BINARY_BYTES]):
        if data.startswith(STREAM):
            return Form("", problem=f"binary, or an Arrow stream whose name lacks {STREAM_ENDING}")
        return Form("", problem=UNREAD[BOM_UTF16_LE] if _is_utf16(start) else "binary")
    text = data.removeprefix(BOM_UTF8).decode(errors="replace").lstrip()
    invalid = text.count(REPLACEMENT) - data.count(REPLACEMENT.encode())
    if invalid > max(FEW_INVALID, INVALID_SHARE * len(text)):
        return Form("", problem="bytes that are not UTF-8 (convert text to UTF-8)")
    is_array = text[:1] == "["
    starts = ("{", "[", '"') if name.endswith(".json") else ("{", "[")  # of elements; ["a"] may begin a text
    if text[:1] != "{" and not (is_array and text[1:].lstrip()[:1] in starts):
        return Form(kind)
    series: list[Any] = []
    found = _elements(text[1:]) if is_array else _records_of_lines(text, whole)
    if found == [None]:
        series = _elements(f"{text}\n")  # objects one after the other may take several lines each
        is_array, found = len(series) > 1, series if len(series) > 1 else found
    undecided = not whole and (not found or (found == [None] and not series))
    if undecided and len(data) < MORE_BYTES:
        return None
    holds = any(holds_content(record, options) for record in found)
    if not holds and (command := file_command(found if text[0] == "[" else series or found, text[0] == "[")):
        return Form("", problem=f"JSON of conversations in another form (jq -c '{command}' writes them as lines)")
    alone = len(found) == 1 and not holds and not isinstance(found[0], list)
    if names := _names_of_records((series or found)[0], text, options) if alone else ():
        each = "array of an object" if is_array else "object"
        path = ".[]" * is_array + "".join(f"[{json.dumps(name)}]" for name in names)
        path = f"{path if is_array else '.' + path}[]"
        field = ".".join(names)
        return Form("", problem=f"JSON {each} with records in field '{field}' (jq -c '{path}' writes them as lines)")
    if found and is_array and all(isinstance(record, str) for record in found):
        are_texts = holds and (options.records == "text" or sum(map(len, found)) >= TEXT_CHARACTERS * len(found))
        return Form("array" if are_texts else kind)
    if not found or not all(isinstance(record, dict) for record in found):
        return Form(kind)
    if holds:
        return Form("array" if is_array else "lines")
    if kind != "lines" and text[0] == "{" and len(found) == 1:
        return Form(kind)  # one object, such as a file of settings
    is_source = kind == "text" and not packed
    return Form(kind, problem="" if is_source else NO_TEXT, lacks=no_content(f"{path}:1", options, found[0]))


def _is_utf16(start: bytes) -> bool:
    """Whether bytes with zeros are a text in UTF-16 without a byte order mark, most of whose characters are ASCII."""
    for first, second in ((start[::2], start[1::2]), (start[1::2], start[::2])):
        if len(first) > 3 and min(first) >= ord("\t") and second.count(0) > ASCII_SHARE * len(second):
            return True
    return False


def _elements(text: str) -> list[Any]:
    """The first elements of an array without its opening bracket, or of a series of objects."""
    return [record for start, end, record in islice(array_elements(text), SAMPLE_RECORDS) if end > start]


def _names_of_records(record: Any, text: str, options: BuildOptions) -> tuple[str, ...]:
    """The names that lead from an object to the first list of records with a text; empty if there is none.

    ``record``: the object; None if ``text``, its start, does not hold all of it.
    """
    waiting: list[tuple[tuple[str, ...], Any]] = [((), record)] if isinstance(record, dict) else []
    for names, outer in waiting:  # grows
        for name, value in outer.items():
            if isinstance(value, list) and _are_records(value[:SAMPLE_RECORDS], options):
                return (*names, name)
            if isinstance(value, dict):
                waiting.append(((*names, name), value))
    lists = _LIST.finditer(text) if record is None else ()
    return next(((each[1],) for each in lists if _are_records(_elements(text[each.end() :]), options)), ())


def _are_records(found: list[Any], options: BuildOptions) -> bool:
    return bool(found) and all(isinstance(each, dict) and holds_content(each, options) for each in found)


def _records_of_lines(text: str, whole: bool) -> list[Any]:
    """The records of the first lines; an odd value if one of the first two lines is not JSON."""
    lines = text.split("\n") if whole else text.split("\n")[:-1]
    records: list[Any] = []
    for line in islice(filter(str.strip, lines), SAMPLE_RECORDS):
        try:
            records.append(json.loads(line.removeprefix("\ufeff")))
        except (ValueError, RecursionError):
            return records if len(records) > 1 else [None]
    return records
