"""The document table of a segment: where each document came from, compressed in blocks and read lazily.

Layout (docs/FORMAT.md): u32 block count, u32 documents per block, then u32[block count + 1] offsets of the blocks from the
end of this array, then the blocks. A block is one zstd frame of a JSON array with the source of each of its documents.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable

import numpy as np
import zstandard

from datastore.errors import Corruption

BLOCK_DOCUMENTS = 256
MAX_BLOCK_BYTES = 1 << 24
"""A block may not unpack to more: what a reader allocates is bounded, whatever a damaged frame says."""
MAX_SOURCE_CHARACTERS = 4096


class DocumentTableWriter:
    """Collects the source of each document of a segment, in order. Not thread-safe; keeps compressed blocks in memory."""

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._blocks: list[bytes] = []
        self._compressor = zstandard.ZstdCompressor(level=9)

    def add(self, source: str) -> None:
        """The next document came from ``source``: a path, or a path and an id; cut after 4096 characters."""
        self._pending.append(source[:MAX_SOURCE_CHARACTERS])
        if len(self._pending) == BLOCK_DOCUMENTS:
            self._close_block()

    def extend(self, sources: Iterable[str]) -> None:
        for source in sources:
            self.add(source)

    def finish(self) -> bytes:
        """The table, for ``write_segment(documents=...)``."""
        if self._pending:
            self._close_block()
        offsets = np.zeros(len(self._blocks) + 1, "<u4")
        np.cumsum([len(block) for block in self._blocks], out=offsets[1:])
        return struct.pack("<II", len(self._blocks), BLOCK_DOCUMENTS) + offsets.tobytes() + b"".join(self._blocks)

    def _close_block(self) -> None:
        self._blocks.append(
            self._compressor.compress(json.dumps(self._pending, ensure_ascii=False).encode("utf-8", "replace"))
        )
        self._pending.clear()


class DocumentTable:
    """Reads a table one block at a time. The bytes may be damaged. Thread-safe: it keeps no state."""

    def __init__(self, table: memoryview | bytes, path: str) -> None:
        self._table = memoryview(table)
        self._path = path

    def source(self, document: int) -> str | None:
        """Where document ``document`` came from; None if the segment was written without a table.

        Raises:
            Corruption: the table is damaged.
        """
        if len(self._table) == 0:
            return None
        try:
            block_count, block_documents = struct.unpack_from("<II", self._table)
            block, place = divmod(document, block_documents)
            if block >= block_count:
                raise ValueError(f"it has {block_count} blocks")
            begin, end = struct.unpack_from("<II", self._table, 8 + 4 * block)
            base = 8 + 4 * (block_count + 1)
            frame = bytes(self._table[base + begin : base + end])
            if zstandard.frame_content_size(frame) > MAX_BLOCK_BYTES:
                raise ValueError(f"a block unpacks to more than {MAX_BLOCK_BYTES} bytes")
            text = zstandard.ZstdDecompressor().decompress(frame, max_output_size=MAX_BLOCK_BYTES)
            return str(json.loads(text)[place])
        except (struct.error, ValueError, ZeroDivisionError, LookupError, TypeError, zstandard.ZstdError) as error:
            raise Corruption(f"{self._path}: the document table is damaged at document {document}: {error}") from error
