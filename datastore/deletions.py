"""The list of deleted documents, read from the document tables of deletion segments.

A deletion segment holds the tokens of deleted documents, which searches subtract. Its table names the live segment and the index
of each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from suffolk.datastore.documents import Metadata, Origin
from suffolk.datastore.errors import damaged
from suffolk.datastore.segment import SegmentEntry

Deleted = Mapping[str, npt.NDArray[np.uint32]]
"""Name of a live segment -> the rising indices of its deleted documents."""


def deletion_metadata(segment: str, document: int) -> Metadata:
    """The entry of document ``document`` of ``segment`` in the table of a deletion segment."""
    return {"segment": segment, "document": document}


def deleted_place(origin: Origin) -> tuple[str, int]:
    """The segment and the document that an entry of a deletion segment names; there may be no such document.

    Raises:
        Corruption: it names none.
    """
    segment, document = origin.metadata.get("segment"), origin.metadata.get("document")
    if not isinstance(segment, str) or not isinstance(document, int):
        raise damaged("a deletion segment", f"names document {document!r} of segment {segment!r}")
    return segment, document


def read_deleted(entries: Sequence[SegmentEntry], origins: Iterable[Origin]) -> Deleted:
    """The deleted documents of the live segments ``entries``; each has its rising array, which may be empty.

    Raises:
        Corruption: an entry names no document of them, or one that another entry names too.
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
