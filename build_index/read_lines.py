"""Reads JSON lines and JSON arrays as blocks of whole records in bounded memory."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import Any

from suffolk.build_index.block import BLOCK_BYTES, MAX_LINE_BYTES, Lines
from suffolk.build_index.input_file import Chunks
from suffolk.datastore.errors import InvalidArgument

DAMAGED_CHARACTERS = 200
"""Characters of the damaged rest of an array that are kept as a line."""
DAMAGED = object()
"""Stands for a damaged element of an array."""
_LONGEST = 12
"""An error within this many characters of a text's end may mean that a word, number or escape is cut off there."""
_BETWEEN = re.compile(r"[\s,]*")


def no_number(name: str) -> None:
    """The value of NaN, Infinity or -Infinity: null, for which pandas writes NaN."""


_DECODER = json.JSONDecoder(parse_constant=no_number)


def read_lines(path: str, chunks: Chunks) -> Iterator[tuple[Lines, int]]:
    """Yield blocks of about 1 MiB of whole lines, each with the number of bytes of the file ``path`` read so far.

    Raises the errors of ``chunks``, and InvalidArgument if a line is longer than 256 MiB.
    """
    first_line, rest = 1, b""
    bytes_read = 0
    for number, (chunk, bytes_read) in enumerate(chunks):
        if number == 0:
            chunk = chunk.removeprefix(BOM_UTF8)  # some editors and export tools write a byte order mark
        cut = chunk.rfind(b"\n") + 1
        if cut:
            data = rest + chunk[:cut] if rest else chunk[:cut]
            rest = chunk[cut:]
            yield Lines(path, first_line, data), bytes_read
            first_line += data.count(b"\n")
        else:
            rest += chunk
        if len(rest) > MAX_LINE_BYTES:
            raise InvalidArgument(
                f"{path}:{first_line}: a line of more than {MAX_LINE_BYTES >> 20} MiB; is this file JSON lines?"
            )
    if rest:
        yield Lines(path, first_line, rest), bytes_read


def read_array(path: str, chunks: Chunks) -> Iterator[tuple[Lines, int]]:
    """The same as ``read_lines``, for one JSON array, or a series of objects without brackets. Each element becomes a line; lines
    are numbered like elements.

    If the element after a damaged element begins a line at the same indentation, the damaged element becomes one line that is not
    JSON. Otherwise, and if the array is cut off, the rest of the file becomes such a line.
    """
    first, rest, wanted, closing = 1, "", BLOCK_BYTES, ""
    bytes_read = 0
    for number, (chunk, bytes_read) in enumerate(chunks):
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
            yield Lines(path, first, b"\n".join(lines)), bytes_read
        first += len(lines)
        wanted = max(BLOCK_BYTES, 2 * len(rest))
        if len(rest) > MAX_LINE_BYTES:
            break
    lines, rest = _take(rest)
    rest = rest.lstrip()
    after = (
        rest[len(closing) :].strip()
        if rest.startswith(closing)
        else rest[:DAMAGED_CHARACTERS] + " and no end of the array"
    )
    if after:
        lines.append(_damaged_line(after[:DAMAGED_CHARACTERS]))
    if lines:
        yield Lines(path, first, b"\n".join(lines)), bytes_read


def array_elements(text: str) -> Iterator[tuple[int, int, Any]]:
    """Yield (begin, end, element) for each complete element of a JSON array. It takes ``text[begin:end]``.

    ``text`` begins after the opening bracket, and may be cut off. A damaged element is DAMAGED, as in ``read_array``. The last
    tuple is (place, place, None) with the place where reading ended.
    """
    place = _skip(text, 0)
    while place < len(text) and text[place] != "]":
        try:
            element, end = _DECODER.raw_decode(text, place)
        except RecursionError:
            break
        except json.JSONDecodeError as error:
            if (end := _next_element(text, place, error)) < 0:
                break
            element = DAMAGED
        if end == len(text) and not isinstance(element, dict | list | str):
            break  # the number may be cut off
        yield place, end, element
        place = _skip(text, end)
    yield place, place, None


def _take(text: str) -> tuple[list[bytes], str]:
    """The elements at the start of ``text``, each on one line, and what follows them."""
    *found, (place, _, _) = array_elements(text)
    lines = [(_damaged_line if each is DAMAGED else _one_line)(text[start:end]) for start, end, each in found]
    return lines, text[_line_start(text, place) :]


def _next_element(text: str, place: int, error: json.JSONDecodeError) -> int:
    """The place of the next object on a line of its own, after a damaged element at ``place``; -1 if none is known.

    ``error``: the element's error. Near the end of ``text``, it says only that the text is cut off.
    """
    indentation = text[_line_start(text, place) : place]
    if (
        not indentation.isspace()
        and indentation
        or error.msg.startswith("Unterminated")
        or error.pos > len(text) - _LONGEST
    ):
        return -1
    begin = max(place, text.rfind("\n", place, error.pos))  # earlier lines may begin nested objects
    at = text.find(f"\n{indentation}{{", begin)
    return at if at < 0 else at + 1 + len(indentation)


def _line_start(text: str, place: int) -> int:
    """The place after the line end before ``place``, if only white space is between; else ``place``."""
    start = text.rfind("\n", 0, place) + 1
    return start if not text[start:place].strip() else place


def _damaged_line(text: str) -> bytes:
    """A damaged element as a line that is not JSON. If spaces in place of its line ends make it valid JSON, tabs are used
    instead."""
    line = text.rstrip(" \t\r\n,")
    found = _one_line(line)
    try:
        json.loads(found)
    except (ValueError, RecursionError):
        return found
    return line.replace("\n", "\t").encode("latin-1")


def _one_line(text: str) -> bytes:
    return text.encode("latin-1").replace(b"\n", b" ")


def _skip(text: str, place: int) -> int:
    """The place of the next character that is neither space nor comma."""
    match = _BETWEEN.match(text, place)
    return match.end() if match else place
