"""The document table of a segment: the source and metadata of each document, compressed in blocks.

Layout (docs/reference/file-format.md): u32 block count, u32 documents per block, u32[block count + 1] offsets of the blocks from
the end of this array, the blocks. A block is one zstd frame of a JSON array with an object for each document.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import zstandard

from suffolk.datastore.arguments import is_list
from suffolk.datastore.errors import Corruption, Field, InvalidArgument, damaged
from suffolk.datastore.files import name_text

BLOCK_DOCUMENTS = 256
MAX_BLOCK_BYTES = 1 << 24
"""The largest size of an unpacked block, in bytes. This bounds a reader's memory even if the file is damaged."""
MAX_TABLE_BYTES = (1 << 32) - 1
"""The largest size of all blocks together, in bytes, because offsets of blocks have 4 bytes."""
MAX_SOURCE_CHARACTERS = 4096
MAX_GROUP_CHARACTERS = 256
MAX_METADATA_BYTES = 1 << 14
"""The largest size of one document's metadata, in bytes of JSON. A block whose documents all have the largest metadata
and source fits MAX_BLOCK_BYTES."""

Value = str | int | float | bool
Metadata = Mapping[str, Value]
NO_METADATA: Metadata = {}


class Origin(NamedTuple):
    """An entry of a document table.

    Attributes:
        source: the document's id: a path, a path and a line, or a path and an id; None if no id was recorded.
        metadata: field -> value, for the fields that the build keeps (``--metadata``) and the record has.
    """

    source: str | None
    metadata: Metadata = NO_METADATA


@dataclass(frozen=True, slots=True)
class Document:
    """One document.

    Attributes:
        source, metadata: see ``Origin``.
        tokens: uint32[n].
    """

    source: str | None
    metadata: Metadata
    tokens: npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence of a pattern.

    Attributes:
        segment: name of the segment; empty for a document in the memory of a live datastore.
        document: index of the document in the segment. For a document in memory, its number.
        offset: token offset of the pattern in the document.
        source, metadata: origin of the document; see ``suffolk.datastore.documents.Origin``.
        tokens: uint32[m], the pattern and the tokens after it, up to the document's end.
        before: uint32[k], the tokens before the pattern, from the document's beginning on.
        datastore: name of the datastore that holds the document.
    """

    segment: str
    document: int
    offset: int
    source: str | None
    metadata: Metadata
    tokens: npt.NDArray[np.uint32]
    before: npt.NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    datastore: str = ""

    def facts(self) -> dict[str, Any]:
        """All fields but the tokens, for JSON."""
        return {
            "datastore": self.datastore,
            "segment": self.segment,
            "document": self.document,
            "offset": self.offset,
            "id": self.source,
            "metadata": dict(self.metadata),
        }


def check_documents(documents: object) -> None:
    """Raise InvalidArgument unless ``documents`` is a list of Document."""
    if not is_list(documents):
        raise InvalidArgument(f"documents is of type {type(documents).__name__}; give a list of suffolk.Document")
    for index, document in enumerate(documents):
        if not isinstance(document, Document):
            raise InvalidArgument(f"documents[{index}] is of type {type(document).__name__}; give a suffolk.Document")


def check_source(source: str) -> None:
    """Check the id of a document.

    Raises:
        InvalidArgument: ``source`` is no text, empty or too long.
    """
    _check_length("id", source, MAX_SOURCE_CHARACTERS)


def check_group(group: str) -> None:
    """Check the name of a group.

    Raises:
        InvalidArgument: ``group`` is no text, empty or too long.
    """
    _check_length("group", group, MAX_GROUP_CHARACTERS, ": use a hash of a long key")


def _check_length(name: str, text: object, most: int, advice: str = "") -> None:
    if not isinstance(text, str) or not 0 < len(text) <= most:
        raise InvalidArgument(Field(name), f" is {_short(text)}; it must be a text of 1 to {most} characters{advice}")


def checked_metadata(source: str, metadata: Metadata) -> Metadata:
    """Return ``metadata`` without null values, in the form that a document table can hold.

    Raises:
        InvalidArgument: it is no mapping, a value is not a text, finite number or boolean, or it has more than 16 KiB as JSON.
    """
    if not isinstance(metadata, Mapping):
        raise InvalidArgument(f"{source}: metadata is of type {type(metadata).__name__}; give a dict")
    metadata = {name: value for name, value in metadata.items() if value is not None}
    for name, value in metadata.items():
        if not _is_value(value):
            raise InvalidArgument(
                f"{source}: metadata field '{name}' holds {type(value).__name__}, not text, a finite number or a "
                "boolean; name a field inside it (with dots), or leave it out"
            )
    if (size := len(_json(metadata).encode("utf-8", "replace"))) > MAX_METADATA_BYTES:
        raise InvalidArgument(
            f"{source}: metadata of {size} bytes; a document may have {MAX_METADATA_BYTES}: keep fewer or shorter fields"
        )
    return metadata


class DocumentTableWriter:
    """Collects the origin of each document of a segment, in order. Not thread-safe; keeps compressed blocks in memory."""

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._blocks: list[bytes] = []
        self._compressor = zstandard.ZstdCompressor(level=9)

    def add(self, source: str | None, metadata: Metadata = NO_METADATA) -> None:
        """Add the next document. ``source`` is cut after 4096 characters.

        Raises:
            InvalidArgument: a value is not a text, finite number or boolean, or the metadata has more than 16 KiB as JSON.
        """
        source = name_text(source or "")[:MAX_SOURCE_CHARACTERS]
        entry = {"source": source, "metadata": checked_metadata(source, metadata)} if metadata else {"source": source}
        self._pending.append(_json(entry))
        if len(self._pending) == BLOCK_DOCUMENTS:
            self._close_block()

    def extend(self, origins: Iterable[tuple[str, Metadata]]) -> None:
        """Add several documents, in order."""
        for source, metadata in origins:
            self.add(source, metadata)

    def finish(self) -> bytes:
        """The table, for ``write_segment(documents=...)``. This call needs memory for a second copy.

        Raises:
            InvalidArgument: the table would have more than 4 GiB.
        """
        if self._pending:
            self._close_block()
        offsets = np.cumsum([0, *(len(block) for block in self._blocks)], dtype=np.int64)
        if offsets[-1] > MAX_TABLE_BYTES:
            raise InvalidArgument(
                f"the document table of a segment takes {offsets[-1]} bytes; the limit is {MAX_TABLE_BYTES}: keep fewer "
                "fields (--metadata), build smaller segments (--segment-tokens), or compact into more of them (--segments)"
            )
        head = struct.pack("<II", len(self._blocks), BLOCK_DOCUMENTS) + offsets.astype("<u4").tobytes()
        return b"".join([head, *self._blocks])

    def _close_block(self) -> None:
        self._blocks.append(self._compressor.compress(f"[{','.join(self._pending)}]".encode("utf-8", "replace")))
        self._pending.clear()


class DocumentTable:
    """Reads a table one block at a time. The bytes may be damaged. Thread-safe."""

    def __init__(self, table: memoryview | bytes, path: str) -> None:
        self._table = table  # only this object keeps the segment's file mapped (``keep_alive``); a view of it would not
        self._path = path

    def origin(self, document: int) -> Origin:
        """The entry of document ``document``; an empty entry if the segment was written without a table.

        Raises:
            Corruption: the table is damaged.
        """
        if len(self._table) == 0:
            return Origin(None)
        block, place = divmod(document, BLOCK_DOCUMENTS)
        origins = self._block(block, document)
        if place >= len(origins):
            raise self._damaged(document, f"block {block} has {len(origins)} documents")
        return origins[place]

    def origins(self, documents: int) -> Iterator[Origin]:
        """The entry of each of the segment's ``documents``, in order.

        Raises:
            Corruption: the table is damaged, or its number of documents differs from the segment's.
        """
        for first in range(0, documents, BLOCK_DOCUMENTS):
            expected = min(BLOCK_DOCUMENTS, documents - first)
            if len(self._table) == 0:
                yield from [Origin(None)] * expected
                continue
            origins = self._block(first // BLOCK_DOCUMENTS, first)
            if len(origins) != expected:
                raise self._damaged(first, f"a block has {len(origins)} documents, not {expected}")
            yield from origins

    def _block(self, block: int, document: int) -> list[Origin]:
        try:
            block_count, block_documents = struct.unpack_from("<II", self._table)
            if block_documents != BLOCK_DOCUMENTS or block >= block_count:
                raise ValueError(f"it has {block_count} blocks of {block_documents} documents")
            begin, end = struct.unpack_from("<II", self._table, 8 + 4 * block)
            base = 8 + 4 * (block_count + 1)
            frame = bytes(self._table[base + begin : base + end])
            if zstandard.frame_content_size(frame) > MAX_BLOCK_BYTES:
                raise ValueError(f"a block unpacks to more than {MAX_BLOCK_BYTES} bytes")
            text = zstandard.ZstdDecompressor().decompress(frame, max_output_size=MAX_BLOCK_BYTES)
            entries = json.loads(text, parse_constant=_refuse_constant)
            if not isinstance(entries, list):
                raise ValueError("a block is no list")
            return [_origin(entry) for entry in entries]
        except (struct.error, ValueError, RecursionError, zstandard.ZstdError) as error:
            raise self._damaged(document, error) from error

    def _damaged(self, document: int, reason: object) -> Corruption:
        return damaged(f"{self._path}:", f"the document table is damaged at document {document} ({reason})")


def _origin(entry: Any) -> Origin:
    if not isinstance(entry, dict) or not {"source"} <= entry.keys() <= {"source", "metadata"}:
        raise ValueError("an entry is no object of source and metadata")
    source, metadata = entry["source"], entry.get("metadata", NO_METADATA)
    if not isinstance(source, str) or not isinstance(metadata, dict) or not all(map(_is_value, metadata.values())):
        raise ValueError("an entry's source or metadata is of the wrong type")
    return Origin(source or None, metadata)


def _is_value(value: object) -> bool:
    if isinstance(value, float):
        return value - value == 0  # infinities and NaN have no JSON form
    return isinstance(value, (str, int))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _short(value: object) -> str:
    return f"a text of {len(value)} characters" if isinstance(value, str) and value else repr(value)[:80]
