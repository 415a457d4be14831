"""A temporary file for the tokens of one segment, and the segments of documents that are written through it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.build_index.options import DEFAULT_SEGMENT_TOKENS
from suffolk.build_index.workspace import Workspace, disk_errors
from suffolk.datastore.documents import DocumentTableWriter, Metadata
from suffolk.datastore.manifest import Manifest
from suffolk.datastore.segment import SegmentEntry, separator, token_dtype, write_segment

Document = tuple[npt.NDArray[Any], str | None, Metadata, int | None]
"""Tokens, source, metadata, and the time of a live document."""


class TokenFile:
    """Context manager over a file of tokens at ``path``; the file is removed at the end. Tokens are appended, and then
    mapped for sorting. Not thread-safe.

    Raises:
        ResourceExhausted: the disk is full.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        self._path = path
        self._dtype = dtype
        self.tokens = 0

    def __enter__(self) -> TokenFile:
        self._file = open(self._path, "wb")  # noqa: SIM115  closed by __exit__
        return self

    def append(self, tokens: npt.NDArray[Any]) -> None:
        """Add ``tokens`` (of the file's dtype) at the end."""
        with disk_errors(self._path):
            self._file.write(tokens.tobytes())
        self.tokens += len(tokens)

    def mapped(self) -> npt.NDArray[Any]:
        """All tokens, read-only, as a memory map."""
        with disk_errors(self._path):
            self._file.flush()
        return np.memmap(self._path, self._dtype, mode="r")

    def __exit__(self, error: object, *_: object) -> None:
        try:
            with suppress(OSError) if error else disk_errors(self._path):  # an earlier error causes this one
                self._file.close()
        finally:
            self._path.unlink(missing_ok=True)


def write_segments(
    workspace: Workspace,
    manifest: Manifest,
    groups: Iterable[Iterator[Document]],
    threads: int,
    most_tokens: int = DEFAULT_SEGMENT_TOKENS,
) -> Iterator[SegmentEntry]:
    """Write documents as segments of the generation of ``manifest``.

    Args:
        groups: a segment holds documents of one group.
        most_tokens: a segment ends with the document that reaches this number of tokens.
    """
    dtype = token_dtype(manifest.vocab_size)
    end = np.array([separator(dtype)], dtype)
    numbers = count()
    for documents in groups:
        while True:
            table = DocumentTableWriter()
            newest: int | None = None
            with TokenFile(workspace.tokens, dtype) as file:
                for tokens, source, metadata, time in documents:
                    file.append(tokens.astype(dtype))
                    file.append(end)
                    table.add(source, metadata)
                    newest = time if newest is None or time is None else max(newest, time)
                    if file.tokens >= most_tokens:
                        break
                if file.tokens == 0:
                    break
                entry = write_segment(
                    workspace.new_segment(workspace.segment_name(manifest.generation, next(numbers), newest)),
                    file.mapped(),
                    vocab_size=manifest.vocab_size,
                    order_depth=manifest.order_depth,
                    fingerprint=manifest.tokenizer,
                    documents=table.finish(),
                    threads=threads,
                )
            yield workspace.name_by_content(entry)
