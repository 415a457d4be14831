"""Reads plain text and source files as blocks of whole documents. A large file becomes several, cut at line ends."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO

from suffolk.build_index.block import BLOCK_BYTES, Texts
from suffolk.build_index.inputs import InputFile
from suffolk.datastore.errors import InvalidArgument

SNIFF_BYTES = 1024


def is_binary(data: bytes) -> bool:
    """Whether the start of a file holds a NUL byte. Text in UTF-8 holds none."""
    return b"\0" in data[:SNIFF_BYTES]


def read_small_text(file: InputFile, skipped: Counter[str]) -> bytes | None:
    """The content of the file. An empty file, or a binary file found in a folder, gives None and is counted in
    ``skipped``.

    Raises:
        InvalidArgument: the file is binary, and the user named it.
    """
    with file.open() as stream:
        data = stream.read()
    if is_binary(data):
        _skip_binary(file, skipped)
        return None
    if not data:
        skipped["empty"] += 1
        return None
    return data


def read_large_text(file: InputFile, skipped: Counter[str]) -> Iterator[tuple[Texts, int]]:
    """Yield documents of about 1 MiB, each with the number of bytes of the file read so far. Cuts are after line ends."""
    with file.open() as stream:
        if is_binary(stream.read(SNIFF_BYTES)):
            _skip_binary(file, skipped)
            return
        stream.seek(0, os.SEEK_SET)
        yield from _pieces(stream, file.path)


def _pieces(stream: BinaryIO, path: str) -> Iterator[tuple[Texts, int]]:
    offset, rest = 0, b""
    while chunk := stream.read(BLOCK_BYTES):
        data = rest + chunk
        cut = data.rfind(b"\n") + 1 or _character_boundary(data)
        yield Texts(((f"{path}@{offset}", data[:cut]),)), stream.tell()
        offset, rest = offset + cut, data[cut:]
    if rest:
        yield Texts(((f"{path}@{offset}", rest),)), stream.tell()


def _character_boundary(data: bytes) -> int:
    """The largest offset at which a cut splits no UTF-8 character."""
    for cut in range(len(data) - 1, max(0, len(data) - 4), -1):
        if data[cut] & 0xC0 != 0x80:  # a lead byte: its character may continue after the end
            return cut
    return len(data)


def _skip_binary(file: InputFile, skipped: Counter[str]) -> None:
    if file.named:
        raise InvalidArgument(
            f"corpus {file.path}: a binary file (NUL byte in its first {SNIFF_BYTES} bytes); name text, .jsonl, .jsonl.gz, "
            ".jsonl.zst, .parquet, .npy or .bin files"
        )
    skipped["binary"] += 1
