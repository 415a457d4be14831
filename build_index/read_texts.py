"""Reads a large text as blocks of whole documents, cut at line ends."""

from __future__ import annotations

from collections.abc import Iterator

from suffolk.build_index.block import Texts
from suffolk.build_index.input_file import InputFile
from suffolk.build_index.packing import read_chunks


def read_large_text(file: InputFile) -> Iterator[tuple[Texts, int]]:
    """Yield documents of about 1 MiB, each with the number of bytes of the file read so far. Cuts are after line ends."""
    offset, rest = 0, b""
    bytes_read = 0
    for chunk, bytes_read in read_chunks(file):
        data = rest + chunk
        cut = data.rfind(b"\n") + 1 or _character_boundary(data)
        yield Texts(((f"{file.path}@{offset}", data[:cut]),)), bytes_read
        offset, rest = offset + cut, data[cut:]
    if rest:
        yield Texts(((f"{file.path}@{offset}", rest),)), bytes_read


def _character_boundary(data: bytes) -> int:
    """The largest offset at which a cut splits no UTF-8 character."""
    for cut in range(len(data) - 1, max(0, len(data) - 4), -1):
        if data[cut] & 0xC0 != 0x80:  # a lead byte: its character may continue after the end
            return cut
    return len(data)
