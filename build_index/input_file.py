"""One file of a corpus, on disk or in storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

from suffolk.build_index.block import BLOCK_BYTES
from suffolk.datastore.file_systems import is_storage_url
from suffolk.datastore.remote_files import open_url, read_head

TOKEN_KINDS = ("npy", "bin")
RECORD_KINDS = ("lines", "array", "parquet")
KINDS = ("text", *RECORD_KINDS, *TOKEN_KINDS)


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file of a corpus.

    Attributes:
        path: path or URL.
        kind: one of KINDS.
        packing: a key of ``packing.MAGIC``; empty if the file is not compressed.
        size: bytes on disk.
        modified_ns: time of the last change; for a URL a number that changes with the file.
        named: whether the user gave this path. A named file must not be skipped.
    """

    path: str
    kind: str
    packing: str
    size: int
    modified_ns: int
    named: bool

    @property
    def is_small_text(self) -> bool:
        """Whether the file is a plain text that shares a block with others."""
        return self.kind == "text" and not self.packing and self.size <= BLOCK_BYTES

    def open(self) -> BinaryIO:
        """The content, from its start. Raises OSError; for a URL SuffolkError, also while it is read."""
        return open_url(self.path) if is_storage_url(self.path) else open(self.path, "rb")


def read_start(path: str, size: int) -> bytes:
    """The first ``size`` bytes of a file or URL, or all if it is shorter. Errors as ``InputFile.open``."""
    if is_storage_url(path):
        return read_head(path, size)
    with open(path, "rb") as file:
        return file.read(size)
