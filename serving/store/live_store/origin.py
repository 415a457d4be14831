"""The origin of a live document: its source, metadata and group, as the index and the log keep them."""

from __future__ import annotations

import json
from typing import NamedTuple

from suffolk.datastore.documents import NO_METADATA, Metadata, check_group, check_source, checked_metadata
from suffolk.datastore.documents import Origin as FileOrigin


class LiveOrigin(NamedTuple):
    """The origin of a live document.

    Attributes:
        source: the document's id; None if it has none.
        metadata: field -> value.
        group: the name of its group; None if it has none.
    """

    source: str | None = None
    metadata: Metadata = NO_METADATA
    group: str | None = None

    def fields(self) -> FileOrigin:
        """The origin that conditions of ``suffolk.datastore.query`` select by."""
        return FileOrigin(self.source, self.metadata)


def pack_origin(origin: LiveOrigin) -> bytes:
    """``origin`` as JSON, without what is empty.

    Raises:
        InvalidArgument: the source, the metadata or the group is not allowed.
    """
    source, metadata, group = origin
    if source is not None:
        check_source(source)
    if group is not None:
        check_group(group)
    entry = {
        "source": source,
        "metadata": (checked_metadata(source or "a document", metadata) or None) if metadata else None,
        "group": group,
    }
    kept = {name: value for name, value in entry.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") if kept else b""


def unpack_origin(packed: bytes) -> LiveOrigin:
    """The origin that ``pack_origin`` packed."""
    return LiveOrigin(**json.loads(packed)) if packed else LiveOrigin()
