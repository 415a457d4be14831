"""Segments: immutable sorted runs of tokens, one file each (docs/reference/file-format.md)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.settings import Within

_LIVE_NAME = re.compile(r"g\d+-\d+-live(-?\d+)(-[0-9a-f]{8})?\.segment")


Size = Annotated[int, Within(0)]


@dataclass(frozen=True, slots=True)
class SegmentEntry:
    """A segment as the manifest lists it.

    Attributes:
        name: file name inside ``segments/``.
        tokens, documents: number of tokens and of documents; separators are not counted.
        bytes: size of the file in bytes.
        checksum: checksum of the whole file, 8 hex digits; it is also in the file's trailer.
    """

    name: str
    tokens: Size
    documents: Size
    bytes: Size
    checksum: str

    @property
    def live_time(self) -> int | None:
        """Time of the newest document, in seconds since 1970. None unless a live store published the segment."""
        found = _LIVE_NAME.fullmatch(self.name)
        return int(found[1]) if found is not None else None


def token_dtype(vocab_size: int) -> np.dtype[Any]:
    """The array type for token ids and separators: uint16 up to 65,535 ids, else uint32."""
    return np.dtype(np.uint16 if vocab_size <= 0xFFFF else np.uint32)


def separator(dtype: npt.DTypeLike) -> int:
    """The value that follows every document in a token array: the largest value of the array's type. It is never a
    token id."""
    return int(np.iinfo(dtype).max)


def write_segment(
    path: Path,
    tokens: npt.NDArray[Any],
    *,
    vocab_size: int,
    order_depth: int = 64,
    fingerprint: str | None = None,
    documents: bytes = b"",
    threads: int = 0,
    progress: Callable[[float], None] | None = None,
) -> SegmentEntry:
    """Sort ``tokens`` and write them as the segment ``path``. The file appears whole and on disk, or not at all.

    Args:
        tokens: uint16 or uint32 [n], every document followed by one separator; may be a memory map.
        vocab_size: all ids are below it.
        order_depth: suffixes are sorted by this many tokens, 1..1024. In a query, max_match + max_depth must not exceed it.
        fingerprint: fingerprint of the tokenizer, 64 hex digits; None if unknown.
        documents: the table of ``DocumentTableWriter.finish``.
        threads: number of threads that sort; 0: one per core. It does not change the written bytes.
        progress: called with the share done (0..1) about ten times a second. If it raises, the work ends.

    Memory: 5 bytes a token beside ``tokens`` and ``documents``.

    Raises:
        InvalidArgument: an id is out of range, there are no tokens or more than 2^31, or the last separator is missing.
        ResourceExhausted: disk or memory is used up, or the system starts no more threads.
        KeyboardInterrupt: within a tenth of a second after Ctrl-C.
    """
    digest = bytes(32) if fingerprint is None else bytes.fromhex(fingerprint)
    summary = _native.write_segment(
        os.fspath(path), tokens, vocab_size, order_depth, digest, documents, threads, progress
    )
    return _entry(path, *summary)


def merge_segments(
    path: Path,
    inputs: Sequence[Path],
    deleted: Sequence[npt.NDArray[np.uint32]],
    *,
    documents: bytes = b"",
    threads: int = 0,
    progress: Callable[[float], None] | None = None,
) -> SegmentEntry:
    """Merge sorted segments into the segment ``path``. The file appears whole and on disk, or not at all.

    Args:
        inputs: segment files with the same vocabulary, tokenizer and order depth.
        deleted: for each input, the indices of the documents to leave out, in rising order.
        documents: the document table of the remaining documents.
        threads, progress: threads that merge (0: one per core), and a function called as in ``write_segment``.

    The result has the bytes that ``write_segment`` writes for the remaining documents in order. Checksums of the inputs are not
    compared, so verify the inputs first. Memory: 1/8 byte a token and some MiB a thread beside ``documents``; the inputs are
    mapped.

    Raises:
        InvalidArgument: the inputs differ in vocabulary, tokenizer or order depth; no token remains, or too many do.
        Corruption: an input is damaged. Not all damage is detected.
        ResourceExhausted: the disk is full, or the system starts no more threads.
        KeyboardInterrupt: within a tenth of a second after Ctrl-C.
    """
    segments = [_native.Segment(os.fspath(source)) for source in inputs]
    return _entry(path, *_native.merge_segments(os.fspath(path), segments, deleted, documents, threads, progress))


def _entry(path: Path, tokens: int, documents: int, size: int, checksum: int) -> SegmentEntry:
    return SegmentEntry(path.name, tokens, documents, size, f"{checksum:08x}")
