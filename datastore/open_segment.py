"""A segment of a datastore, mapped into memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.documents import DocumentTable, Origin
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, damaged
from suffolk.datastore.manifest import Manifest
from suffolk.datastore.occurrence import Occurrence
from suffolk.datastore.segment import SegmentEntry


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
        """The occurrence at token ``position``, with at most ``before`` tokens before it and ``length`` from it on.

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

    ``mapped``: the same segment, if it is mapped already. It is then used again.

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
