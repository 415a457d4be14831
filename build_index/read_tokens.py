"""Reads tokenized corpora from memory-mapped files: .npy, and raw little-endian .bin."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from suffolk.build_index.block import BLOCK_TOKENS, TokenRun
from suffolk.build_index.input_file import InputFile
from suffolk.datastore.errors import Corruption, InvalidArgument

_SAMPLE_IDS = 64
_LLM_C = (20240520, 20240801)
"""The first number of llm.c's files, with ids of 2 and of 4 bytes, before 1,020 more bytes of the header."""


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
    if not isinstance(ids, np.ndarray):  # an archive of arrays, whatever its name
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
    """Raises InvalidArgument for what begins like ids of twice the width, or with llm.c's header."""
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
            if len(ends):  # without such an id, a document is longer than the block, and is cut at the end of the block
                window = window[: int(ends[-1]) + 1]
        yield TokenRun(file.path, start, window), file.size * (start + len(window)) // total
        start += len(window)
