"""The documents in memory and their origins: what a flush writes, a checkpoint keeps, and a deletion selects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.datastore.documents import NO_METADATA, Metadata, Origin, check_group, check_source, checked_metadata
from suffolk.datastore.query import Query
from suffolk.serving.store.live_store.record import Change

PAGE_DOCUMENTS = 4096
_FEW_SOURCES = 64  # so many are compared with each origin faster than the origin is unpacked


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


@dataclass(slots=True)
class Selection:
    """Documents in memory.

    Attributes:
        sequences: their sequences, rising.
        tokens: the number of their tokens.
        fields, sources: all metadata fields and sources of the documents that were searched.
    """

    sequences: list[int] = field(default_factory=list)
    tokens: int = 0
    fields: set[str] = field(default_factory=lambda: {"source"})
    sources: set[str | None] = field(default_factory=set)


def live_pages(
    index: _native.LiveIndex, end: int, grouped: bool | None = None, tokens: bool = True
) -> Iterator[Change]:
    """The documents with a sequence below ``end``, the oldest first, some thousand at a time.

    Args:
        grouped: only documents with a group (True) or without one (False); None: both.
        tokens: whether to read their tokens.
    """
    begin = 0
    while True:
        sequences, ids, lengths, groups, origins, times = index.documents(begin, PAGE_DOCUMENTS, tokens)
        if not len(sequences) or sequences[0] >= end:
            return
        begin = int(sequences[-1]) + 1
        kept = sequences < end
        if grouped is not None:
            kept &= (groups != 0) == grouped
        if kept.any():
            yield Change(ids, lengths.astype(np.uint32), sequences, groups, times, origins).of(kept)


def add(index: _native.LiveIndex, change: Change) -> None:
    """In one moment, make the new documents of ``change`` visible, and remove the old documents that it names.

    Raises:
        ResourceExhausted: memory is used up; nothing is changed.
    """
    index.append(
        change.tokens.astype(np.uint32),
        change.lengths.astype(np.uint64),
        change.groups,
        list(change.origins),
        change.times,
        change.removed,
        change.sequences,
    )


def ungrouped_tokens(lengths: npt.NDArray[np.uint32], groups: npt.NDArray[np.uint64]) -> int:
    """Tokens of the documents without a group."""
    return int(lengths[groups == 0].sum(dtype=np.int64))


def select(index: _native.LiveIndex, end: int, query: Query) -> Selection:
    """The documents with a sequence below ``end`` that ``query`` selects.

    If it has a few sources and no conditions, the other origins are neither unpacked nor searched.
    """
    found = Selection()
    few = not query.conditions and len(query.sources) <= _FEW_SOURCES
    wanted = tuple(map(_source_prefix, query.sources)) if few else b""
    for page in live_pages(index, end, tokens=False):
        rows = zip(page.sequences.tolist(), page.lengths.tolist(), page.origins, strict=True)
        for sequence, length, packed in rows:
            if not packed.startswith(wanted):
                continue
            source, metadata, _ = unpack_origin(packed)
            found.fields.update(metadata)
            found.sources.add(source)
            if query.matches(Origin(source, metadata)):
                found.sequences.append(sequence)
                found.tokens += length
    return found


def oldest(index: _native.LiveIndex, end: int, tokens: int, before: int | None = None) -> int:
    """The sequence of the first document to keep. The older documents have at least ``tokens`` tokens in all, and include all
    documents from before the time ``before``.

    Returns ``end`` if no document below ``end`` is to be kept.
    """
    left = tokens
    for page in live_pages(index, end, tokens=False):
        for sequence, length, time in zip(
            page.sequences.tolist(), page.lengths.tolist(), page.times.tolist(), strict=True
        ):
            if left <= 0 and (before is None or time >= before):
                return int(sequence)
            left -= length
    return end


def pack_origin(origin: LiveOrigin) -> bytes:
    """``origin`` as JSON, without empty fields.

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
    return _pack(kept) if kept else b""


def unpack_origin(packed: bytes) -> LiveOrigin:
    """The origin that ``pack_origin`` packed."""
    return LiveOrigin(**json.loads(packed)) if packed else LiveOrigin()


def _source_prefix(source: str) -> bytes:
    """The bytes with which ``pack_origin`` begins for ``source``."""
    return b'{"source":' + _pack(source)


def _pack(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
