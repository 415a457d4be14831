"""Reads a corpus as a stream of blocks, starting at any block. Block boundaries depend only on the files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from suffolk.build_index.block import BLOCK_BYTES, START, Block, Payload, Position, Texts
from suffolk.build_index.input_file import InputFile, read_chunks
from suffolk.build_index.inputs import Inputs, read_error
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.read_lines import read_array, read_lines
from suffolk.build_index.read_parquet import read_parquet
from suffolk.build_index.read_tokens import read_bin, read_npy


def read_blocks(inputs: Inputs, options: BuildOptions, token_width: str, start: Position = START) -> Iterator[Block]:
    """Yield the blocks of all inputs in order, from ``start`` on.

    A resumed build reads the blocks that an uninterrupted build would read next.

    Raises:
        SuffolkError: a file is missing, damaged or of the wrong form; the message names it.
    """
    group: list[tuple[str, str | bytes]] = []
    group_bytes = 0
    before = sum(file.size for file in inputs.files[: start.file])
    for index in range(start.file, len(inputs.files)):
        file = inputs.files[index]
        done = start.block if index == start.file else 0
        if file.is_small_text and not done:
            with _naming(file), file.open() as stream:
                data = stream.read()
            group.append((file.path, data))
            group_bytes += len(data)
            before += file.size
            if group_bytes >= BLOCK_BYTES:
                yield Block(Texts(tuple(group)), Position(index + 1, 0), before)
                group, group_bytes = [], 0
            continue
        if group:
            yield Block(Texts(tuple(group)), Position(index, 0), before)
            group, group_bytes = [], 0
        with _naming(file):
            for number, (payload, bytes_read) in enumerate(_read(file, options, token_width), 1):
                if number > done:
                    yield Block(payload, Position(index, number), before + bytes_read)
        before += file.size
    if group:
        yield Block(Texts(tuple(group)), Position(len(inputs.files), 0), before)


@contextmanager
def _naming(file: InputFile) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise read_error(file.path, error) from error


def _read(file: InputFile, options: BuildOptions, token_width: str) -> Iterator[tuple[Payload, int]]:
    match file.kind:
        case "text":
            return read_large_text(file)
        case "parquet" | "arrow":
            return read_parquet(file, options)
        case "npy":
            return read_npy(file, options.end_of_document)
        case "bin":
            return read_bin(file, token_width, options.end_of_document)
        case "array":
            return read_array(file)
        case _:
            return read_lines(file)


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
