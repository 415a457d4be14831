"""The origin of a live document: its source, metadata and group, as the index and the log keep them."""

from __future__ import annotations

import json
from typing import NamedTuple

from suffolk.datastore.documents import MAX_SOURCE_CHARACTERS, NO_METADATA, Metadata, checked_metadata
from suffolk.datastore.documents import Origin as FileOrigin
from suffolk.datastore.errors import Field, InvalidArgument

MAX_GROUP_CHARACTERS = 256


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
        "metadata": checked_metadata(source or "a document", metadata) if metadata else None,
        "group": group,
    }
    kept = {name: value for name, value in entry.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") if kept else b""


def unpack_origin(packed: bytes) -> LiveOrigin:
    """The origin that ``pack_origin`` packed."""
    return LiveOrigin(**json.loads(packed)) if packed else LiveOrigin()


def check_source(source: str) -> None:
    """Refuse an id that no document can have.

    Raises:
        InvalidArgument: ``source`` is no text, empty or too long.
    """
    if not isinstance(source, str) or not 0 < len(source) <= MAX_SOURCE_CHARACTERS:
        raise InvalidArgument(
            Field("id"), f" is {_short(source)}; it must be a text of 1 to {MAX_SOURCE_CHARACTERS} characters"
        )


def check_group(group: str) -> None:
    """Refuse a name that no group can have.

    Raises:
        InvalidArgument: ``group`` is no text, empty or too long.
    """
    if not isinstance(group, str) or not 0 < len(group) <= MAX_GROUP_CHARACTERS:
        raise InvalidArgument(
            Field("group"),
            f" is {_short(group)}; it must be a text of 1 to {MAX_GROUP_CHARACTERS} characters: use a hash of a long key",
        )


def _short(value: object) -> str:
    return f"a text of {len(value)} characters" if isinstance(value, str) and value else repr(value)[:80]
