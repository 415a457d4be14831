"""The list of deleted documents, read from the document tables of deletion segments.

A deletion segment holds the tokens of deleted documents; searches subtract its counts. Its document table names the live segment
and the index of each deleted document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from suffolk.datastore.documents import Metadata, Origin
from suffolk.datastore.errors import damaged
from suffolk.datastore.segment import SegmentEntry

Deleted = Mapping[str, npt.NDArray[np.uint32]]
"""Name of a live segment -> the indices of its deleted documents, in rising order."""


def deletion_metadata(segment: str, document: int) -> Metadata:
    """The entry of document ``document`` of ``segment`` in the table of a deletion segment."""
    return {"segment": segment, "document": document}


def deleted_place(origin: Origin) -> tuple[str, int]:
    """The live segment and the document index that an entry of a deletion segment names. The document may not exist.

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
