"""Reads JSON lines, plain or compressed, as blocks of whole lines in bounded memory."""

from __future__ import annotations

import gzip
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import BinaryIO

import zstandard

from suffolk.build_index.block import BLOCK_BYTES, MAX_LINE_BYTES, Lines
from suffolk.build_index.inputs import InputFile
from suffolk.datastore.errors import Corruption, InvalidArgument

COMPRESSED_CHUNK = 512
"""Bytes of a zstd stream that are read at a time. Unpacked, they have at most 16 MiB, which is 32,000 times as much."""
MAX_WINDOW = 1 << 31


def read_lines(file: InputFile) -> Iterator[tuple[Lines, int]]:
    """Yield blocks of about 1 MiB of whole lines, each with the number of bytes of the file read so far.

    Raises:
        Corruption: the compressed stream is broken or cut off.
        InvalidArgument: a line is longer than 256 MiB.
    """
    first_line, rest = 1, b""
    bytes_read = 0
    for number, (chunk, bytes_read) in enumerate(_chunks(file)):
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


def _chunks(file: InputFile) -> Iterator[tuple[bytes, int]]:
    """Yield about 1 MiB of decompressed data at a time, with the number of bytes of the file read so far."""
    with file.open() as stream:
        source = {"lines": _plain, "lines-gz": _gunzip, "lines-zst": _unzstd}[file.kind](stream, file.path)
        pieces: list[bytes] = []
        size = 0
        for piece in source:
            pieces.append(piece)
            size += len(piece)
            if size >= BLOCK_BYTES:
                yield b"".join(pieces), stream.tell()
                pieces, size = [], 0
        if pieces:
            yield b"".join(pieces), stream.tell()


def _plain(stream: BinaryIO, path: str) -> Iterator[bytes]:
    while chunk := stream.read(BLOCK_BYTES):
        yield chunk


def _gunzip(stream: BinaryIO, path: str) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=stream) as unzipped:
            while chunk := unzipped.read(BLOCK_BYTES):
                yield chunk
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _broken(path, "gzip", error) from error


def _unzstd(stream: BinaryIO, path: str) -> Iterator[bytes]:
    """Decompress frame by frame: a stream that stops inside a frame is truncated."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
    frame = decompressor.decompressobj()
    inside = False
    try:
        while chunk := stream.read(COMPRESSED_CHUNK):
            while chunk:
                inside = True
                if data := frame.decompress(chunk):
                    yield data
                chunk = frame.unused_data if frame.eof else b""
                if frame.eof:
                    frame, inside = decompressor.decompressobj(), False
    except zstandard.ZstdError as error:
        raise _broken(path, "zstandard", error) from error
    if inside:
        raise _broken(path, "zstandard", "the last frame is cut off")


def _broken(path: str, format_name: str, reason: object) -> Corruption:
    return Corruption(f"corpus {path}: broken {format_name} stream ({reason}); fetch the file again or leave it out")
