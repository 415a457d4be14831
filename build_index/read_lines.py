"""Reads JSON lines and JSON arrays as blocks of whole records in bounded memory."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Any

from suffolk.build_index.block import BLOCK_BYTES, MAX_LINE_BYTES, Lines
from suffolk.build_index.input_file import InputFile, read_chunks
from suffolk.datastore.errors import InvalidArgument

DAMAGED_CHARACTERS = 200
"""This much of a damaged array becomes a line."""
_BETWEEN = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


def read_lines(file: InputFile) -> Iterator[tuple[Lines, int]]:
    """Yield blocks of about 1 MiB of whole lines, each with the number of bytes of the file read so far.

    Raises:
        Corruption: the compressed stream is broken or cut off.
        InvalidArgument: a line is longer than 256 MiB.
    """
    first_line, rest = 1, b""
    bytes_read = 0
    for number, (chunk, bytes_read) in enumerate(read_chunks(file)):
        if number == 0:
            chunk = chunk.removeprefix(BOM_UTF8)  # some editors and export tools write a byte order mark
        cut = chunk.rfind(b"\n") + 1
        if cut:
            data = rest + chunk[:cut] if rest else chunk[:cut]
            rest = chunk[cut:]
            yield Lines(file.path, first_line, data), bytes_read
            first_line += data.count(b"\n")
        else:
            rest += chunk
        if len(rest) > MAX_LINE_BYTES:
            raise InvalidArgument(
                f"{file.path}:{first_line}: a line of more than {MAX_LINE_BYTES >> 20} MiB; is this file JSON lines?"
            )
    if rest:
        yield Lines(file.path, first_line, rest), bytes_read


def read_array(file: InputFile) -> Iterator[tuple[Lines, int]]:
    """As ``read_lines``, for one JSON array, or a series of objects without brackets. Each element becomes a line; lines are
    numbered like elements.

    What cannot be read as elements, because the array is damaged or cut off, becomes one line that is not JSON.
    """
    first, rest, wanted, closing = 1, "", BLOCK_BYTES, ""
    bytes_read = 0
    for number, (chunk, bytes_read) in enumerate(read_chunks(file)):
        text = chunk.decode("latin-1")  # a character for each byte; the structure of JSON is ASCII
        rest += text
        if number == 0:
            rest = rest.removeprefix(BOM_UTF8.decode("latin-1")).lstrip()
            closing = "]" if rest.startswith("[") else ""
            rest = rest[len(closing) :]
        if len(rest) < wanted:
            continue  # without this, an element of many chunks would be parsed once for each chunk
        lines, rest = _take(rest)
        if lines:
            yield Lines(file.path, first, b"\n".join(lines)), bytes_read
        first += len(lines)
        wanted = max(BLOCK_BYTES, 2 * len(rest))
        if len(rest) > MAX_LINE_BYTES:
            break
    lines, rest = _take(rest)
    after = (
        rest[len(closing) :].strip()
        if rest.startswith(closing)
        else rest[:DAMAGED_CHARACTERS] + " and no end of the array"
    )
    if after:
        lines.append(_one_line(after[:DAMAGED_CHARACTERS]))
    if lines:
        yield Lines(file.path, first, b"\n".join(lines)), bytes_read


def array_elements(text: str) -> Iterator[tuple[int, int, Any]]:
    """Yield the complete elements of a JSON array, each with its first and last place in ``text``.

    ``text`` begins after the opening bracket, and may be cut off. The last tuple has the place where reading ended,
    twice, and None.
    """
    place = _skip(text, 0)
    while place < len(text) and text[place] != "]":
        try:
            element, end = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            break  # perhaps cut off
        if end == len(text) and not isinstance(element, dict | list | str):
            break  # a number may go on
        yield place, end, element
        place = _skip(text, end)
    yield place, place, None


def _take(text: str) -> tuple[list[bytes], str]:
    """The elements at the start of ``text``, each on one line, and what follows them."""
    *found, (place, _, _) = array_elements(text)
    return [_one_line(text[start:end]) for start, end, _ in found], text[place:]


def _one_line(text: str) -> bytes:
    return text.encode("latin-1").replace(b"\n", b" ")


def _skip(text: str, place: int) -> int:
    """The place of the next character that is neither space nor comma."""
    match = _BETWEEN.match(text, place)
    return match.end() if match else place
