"""Reads a corpus as a stream of blocks, starting at any block. Block boundaries depend only on the files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from suffolk.build_index.block import BLOCK_BYTES, BLOCK_TOKENS, START, Block, Payload, Position, Texts, TokenRun
from suffolk.build_index.input_file import Chunks, InputFile, read_chunks, read_error
from suffolk.build_index.inputs import Inputs
from suffolk.build_index.options import BuildOptions
from suffolk.build_index.read_lines import read_array, read_lines
from suffolk.build_index.read_parquet import read_parquet
from suffolk.build_index.skipped import Skipped
from suffolk.datastore.errors import Corruption, InvalidArgument

_SAMPLE_IDS = 64
_LLM_C = (20240520, 20240801)
"""First number in llm.c's files with ids of 2 bytes, and of 4 bytes. 1,020 more bytes of the header follow."""


def read_npy(file: InputFile, end_of_document: int | None) -> Iterator[tuple[TokenRun, int]]:
    """Yield runs of a one-dimensional integer array.

    Each run ends after an end-of-document id, unless it contains none.

    Raises:
        Corruption: not a .npy file, or truncated.
        InvalidArgument: not one-dimensional, or not of integers.
    """
    try:
        ids = np.load(file.path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:  # numpy's own message advises to unpickle the file
        raise _no_array(file) from error
    if not isinstance(ids, np.ndarray):  # the file is an archive of arrays, even if it is named .npy
        ids.close()
        raise _no_array(file)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InvalidArgument(
            f"corpus {file.path}: an array of {ids.dtype} with {ids.ndim} dimensions; token ids are a one-dimensional "
            "array of integers"
        )
    yield from _runs(file, ids, end_of_document)


def _no_array(file: InputFile) -> Corruption:
    return Corruption(
        f"corpus {file.path}: not a whole .npy file of numbers; write it again with numpy.save, or leave it out"
    )


def read_bin(file: InputFile, width: str, end_of_document: int | None) -> Iterator[tuple[TokenRun, int]]:
    """Yield runs of a raw little-endian file of u16 or u32 ids.

    Raises:
        InvalidArgument: the file's size is not a multiple of the width, or as ``_check_width``.
    """
    dtype = np.dtype("<u2" if width == "u16" else "<u4")
    if file.size % dtype.itemsize:
        raise InvalidArgument(
            f"corpus {file.path}: {file.size} bytes is no multiple of {dtype.itemsize}, the size of a {width} id; "
            "give the other --token-format"
        )
    if file.size:
        ids = np.memmap(file.path, dtype, mode="r")
        _check_width(file, ids)
        yield from _runs(file, ids, end_of_document)


def _check_width(file: InputFile, ids: npt.NDArray[np.unsignedinteger]) -> None:
    """Raise InvalidArgument if a file begins like ids of twice the width, or with llm.c's header."""
    first = ids[:_SAMPLE_IDS]
    if first.nbytes >= 4 and int(first[:4].view("<u4")[0]) in _LLM_C:
        raise InvalidArgument(
            f"corpus {file.path}: it begins with the header of llm.c's token files; cut it off, as tail -c +1025 does"
        )
    if len(first) == _SAMPLE_IDS and first[::2].any() and not first[1::2].any():
        wider = "give --token-format u32" if ids.itemsize == 2 else "write them as .npy"
        raise InvalidArgument(
            f"corpus {file.path}: every second id is 0, as if its ids had {2 * ids.itemsize} bytes; {wider}"
        )


def _runs(file: InputFile, ids: npt.NDArray[np.integer], end_of_document: int | None) -> Iterator[tuple[TokenRun, int]]:
    start, total = 0, len(ids)
    while start < total:
        window = np.asarray(ids[start : start + BLOCK_TOKENS])
        if end_of_document is not None and start + len(window) < total:
            ends = np.flatnonzero(window == end_of_document)
            if len(ends):  # without an end-of-document id, the document is cut at the end of the block
                window = window[: int(ends[-1]) + 1]
        yield TokenRun(file.path, start, window), file.size * (start + len(window)) // total
        start += len(window)


def read_blocks(inputs: Inputs, options: BuildOptions, token_width: str, start: Position = START) -> Iterator[Block]:
    """Yield the blocks of all inputs in order, from ``start`` on.

    A resumed build reads the blocks that an uninterrupted build would read next.

    With ``on_error`` "skip", the rest of a file after damage is left out.

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
            for number, (payload, bytes_read) in enumerate(_read_whole(file, options, token_width), 1):
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


def _read_whole(file: InputFile, options: BuildOptions, token_width: str) -> Iterator[tuple[Payload, int]]:
    """Yield the content of a file in blocks. Damage raises an error, or counts as the end of the file."""
    if options.on_error == "stop":
        try:
            yield from _read(file, options, token_width, read_chunks(file))
        except Corruption as error:
            raise Corruption(f"{error}; or leave out the rest of it with --on-error skip") from error
        return
    damage: list[Corruption] = []
    try:
        yield from _read(file, options, token_width, _until_damage(read_chunks(file), damage))
    except Corruption as error:  # a table is damaged
        damage.append(error)
    for each in damage:
        problem = str(each).removeprefix(f"corpus {file.path}: ")
        yield Texts((), left_out=(Skipped(file.path, f"its rest: {problem}"),)), file.size


def _until_damage(chunks: Chunks, damage: list[Corruption]) -> Chunks:
    """Yield ``chunks`` up to damage. The error of the damage is added to ``damage``."""
    try:
        yield from chunks
    except Corruption as error:
        damage.append(error)


def _read(file: InputFile, options: BuildOptions, token_width: str, chunks: Chunks) -> Iterator[tuple[Payload, int]]:
    match file.kind:
        case "text":
            return read_large_text(file.path, chunks)
        case "parquet" | "arrow":
            return read_parquet(file, options)
        case "npy":
            return read_npy(file, options.end_of_document)
        case "bin":
            return read_bin(file, token_width, options.end_of_document)
        case "array":
            return read_array(file.path, chunks)
        case _:
            return read_lines(file.path, chunks)


def read_large_text(path: str, chunks: Chunks) -> Iterator[tuple[Texts, int]]:
    """Yield documents of about 1 MiB, each with the number of bytes of the file read so far.

    Documents are cut after line ends, or after whole characters if there are no line ends. The last one has the rest of the text.
    """
    offset, data, bytes_read = 0, b"", 0
    for chunk, read_with_chunk in chunks:
        if data:
            cut = data.rfind(b"\n") + 1 or _character_boundary(data)
            yield Texts(((f"{path}@{offset}", data[:cut]),)), bytes_read
            offset, data = offset + cut, data[cut:]
        data, bytes_read = data + chunk, read_with_chunk
    if data:
        yield Texts(((f"{path}@{offset}", data),)), bytes_read


def _character_boundary(data: bytes) -> int:
    """The largest offset at which a cut splits no UTF-8 character."""
    for cut in range(len(data) - 1, max(0, len(data) - 4), -1):
        if data[cut] & 0xC0 != 0x80:  # this is the first byte of a character, which may continue after the end
            return cut
    return len(data)
