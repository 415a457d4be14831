"""A segment of a datastore, mapped into memory, and the list of deleted documents in deletion segments.

A deletion segment holds copies of deleted documents. Searches subtract its counts from those of the live segments. Its document
table names each deleted document by live segment and index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.documents import DocumentTable, Metadata, Occurrence, Origin
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, damaged
from suffolk.datastore.manifest import Manifest
from suffolk.datastore.segment import SegmentEntry

Deleted = Mapping[str, npt.NDArray[np.uint32]]
"""Name of a live segment -> the indices of its deleted documents, in rising order."""


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """The mapped file of a segment, and its entry in the manifest. Thread-safe."""

    native: _native.Segment
    entry: SegmentEntry

    def origins(self) -> Iterator[Origin]:
        """The origin of each document, in order.

        Raises:
            Corruption: the document table is damaged.
        """
        return self._table().origins(self.entry.documents)

    def read_document(self, index: int) -> npt.NDArray[np.uint32]:
        """The tokens (uint32[n]) of document ``index``.

        Raises:
            InvalidArgument: no document has this index.
        """
        if index < 0:
            raise InvalidArgument(f"document {index} of {self.entry.name}: documents are counted from 0")
        begin, end = self.native.document_range(index)
        return self.native.read_tokens(begin, end - begin)

    def occurrence(self, position: int, before: int, length: int, datastore: str) -> Occurrence:
        """The occurrence at token ``position``, with at most ``before`` tokens before it and ``length`` tokens from it on.

        Raises:
            Corruption: the position is in no document, or the document table is damaged.
        """
        document = self.native.document_at(position)
        if document >= self.entry.documents:
            raise Corruption(
                f"{self.entry.name}: token {position} lies in no document; run 'suffolk verify' on the datastore"
            )
        begin, end = self.native.document_range(document)
        source, metadata = self._table().origin(document)
        tokens = self.native.read_tokens(position, min(length, end - position))
        before = min(before, position - begin)
        earlier = self.native.read_tokens(position - before, before)
        return Occurrence(self.entry.name, document, position - begin, source, metadata, tokens, earlier, datastore)

    def _table(self) -> DocumentTable:
        return DocumentTable(self.native.document_table(), self.entry.name)


def open_segment(
    folder: Path, entry: SegmentEntry, manifest: Manifest, mapped: OpenSegment | None = None
) -> OpenSegment:
    """Map the file of ``entry`` in ``folder``.

    ``mapped``: the same segment, if it is mapped already; its mapping is used again.

    Raises:
        Corruption: the file is damaged or missing, or differs from its entry in ``manifest``.
        Unsupported: a newer version wrote it.
    """
    path = folder / entry.name
    try:
        segment = _native.Segment(str(path)) if mapped is None else mapped.native
    except (NotFound, InvalidArgument) as error:
        problem = "is no regular file" if path.exists() else "is missing"
        raise damaged(path, problem) from error
    facts = segment.facts()
    tokenizer = bytes(32) if manifest.tokenizer is None else bytes.fromhex(manifest.tokenizer)
    checksum = f"{facts['checksum']:08x}"
    found = (facts["tokens"], facts["documents"], facts["bytes"], checksum, facts["vocab_size"], facts["fingerprint"])
    listed = (entry.tokens, entry.documents, entry.bytes, entry.checksum, manifest.vocab_size, tokenizer)
    if found != listed or facts["order_depth"] < manifest.order_depth:
        problem = "is not the segment that the manifest lists: its sizes, checksum, vocabulary or tokenizer differ"
        raise damaged(path, problem)
    return OpenSegment(segment, entry)


def deletion_metadata(segment: str, document: int) -> Metadata:
    """The metadata by which the document table of a deletion segment names ``document`` of the live segment ``segment``."""
    return {"segment": segment, "document": document}


def deleted_place(origin: Origin) -> tuple[str, int]:
    """The live segment and the document index that an entry of a deletion segment names. The document might not exist.

    Raises:
        Corruption: the entry does not name a segment and a document index.
    """
    segment, document = origin.metadata.get("segment"), origin.metadata.get("document")
    if not isinstance(segment, str) or not isinstance(document, int):
        raise damaged("a deletion segment", f"names document {document!r} of segment {segment!r}")
    return segment, document


def read_deleted(entries: Sequence[SegmentEntry], origins: Iterable[Origin]) -> Deleted:
    """The deleted documents of the live segments ``entries``; the array of a segment may be empty.

    Raises:
        Corruption: an origin names a document that does not exist, or two origins name the same document.
    """
    sizes = {entry.name: entry.documents for entry in entries}
    found: dict[str, set[int]] = {name: set() for name in sizes}
    for origin in origins:
        segment, document = deleted_place(origin)
        if not 0 <= document < sizes.get(segment, 0):
            raise damaged("a deletion segment", f"names document {document} of {segment}, which does not exist")
        if document in found[segment]:
            raise damaged("a deletion segment", f"names document {document} of {segment} a second time")
        found[segment].add(document)
    return {name: np.array(sorted(documents), np.uint32) for name, documents in found.items()}
