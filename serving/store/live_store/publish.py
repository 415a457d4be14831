"""Writes live documents as segment files, merges these files, publishes generations with them, and evicts them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count, groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.build_index.delete import deleted_sources, write_deletions
from suffolk.build_index.options import DEFAULT_SEGMENT_TOKENS
from suffolk.build_index.token_file import TokenFile
from suffolk.build_index.workspace import Workspace, open_workspace
from suffolk.datastore import _native
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.documents import DocumentTableWriter
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, now
from suffolk.datastore.open_segment import OpenSegment
from suffolk.datastore.readers import READERS_NAME
from suffolk.datastore.segment import SegmentEntry, merge_segments, separator, token_dtype, write_segment
from suffolk.serving.store.live_store.contents import unpack_origin
from suffolk.serving.store.live_store.identity import LIVE_NAME, StoreIdentity, published
from suffolk.serving.store.live_store.record import Change
from suffolk.serving.store.live_store.settings import LiveSettings

_Document = tuple[npt.NDArray[Any], int, bytes]
"""Tokens, time and origin."""


def publish_live(
    store: Path, identity: StoreIdentity, settings: LiveSettings, take: Callable[[], tuple[int, Iterable[Change]]]
) -> Manifest:
    """Publish a generation that adds documents. A crash leaves the old generation or the new one.

    Earlier live segments that are no larger than the new ones together are merged with them. So after n flushes, there
    are about log2(n) live segments.

    Args:
        take: returns the manifest's ``live_sequence`` and at least one document. It is called when nothing prevents the
            publication any more.

    Raises:
        Unavailable: another process writes to the datastore, or it holds an interrupted build.
        ResourceExhausted: the disk is full.
    """
    with open_workspace(store, (LIVE_NAME, READERS_NAME)) as workspace:
        workspace.refuse_unfinished("flush")
        base = published(store)
        if base is not None:
            identity.require(base, store)
        through, pages = take()

        def make() -> Manifest:
            generation = 1 if base is None else base.generation + 1
            entries = tuple(write_live_segments(workspace, identity, pages, generation, settings))
            failpoint("flush.written")
            merged = _to_merge(store, base, entries, settings)
            if base is not None and merged:
                entries = (merge_live_segments(workspace, (*merged, *entries), generation, settings.threads),)
                failpoint("flush.merged")
            if base is None:
                return Manifest(
                    generation,
                    entries,
                    identity.vocab_size,
                    identity.order_depth,
                    identity.tokenizer,
                    now(),
                    live_sequence=through,
                )
            kept = base.segments[: len(base.segments) - len(merged)]
            return base.next(segments=(*kept, *entries), live_sequence=through)

        return workspace.publish_change(make)


def drop_published(store: Path, names: Collection[str], threads: int) -> Manifest:
    """Publish a generation without the segments ``names``. A crash leaves the old generation or the new one.

    A generation holds at least one segment. If no other segment would be left, the last one stays, and its documents
    are deleted.

    Raises:
        Unavailable, ResourceExhausted: as ``publish_live``.
    """
    with open_workspace(store) as workspace, open_datastore(store) as datastore:
        workspace.refuse_unfinished("evict")
        kept = tuple(entry for entry in datastore.manifest.segments if entry.name not in names)
        deleted = deleted_sources(datastore, names)
        if not kept:
            kept = datastore.manifest.segments[-1:]
            deleted = deleted_sources(datastore, set(names) - {kept[0].name})
            deleted |= {
                (name, index): found.source for name, index, found in datastore.origins() if name == kept[0].name
            }
        return workspace.publish_change(
            lambda: datastore.manifest.next(
                segments=kept, deletions=write_deletions(workspace, datastore, deleted, threads)
            )
        )


def live_segments(manifest: Manifest | None) -> list[tuple[SegmentEntry, int]]:
    """The segments that ``publish_live`` wrote, the oldest first, each with the time of its newest document in seconds."""
    segments = manifest.segments if manifest is not None else ()
    return [(entry, entry.live_time) for entry in segments if entry.live_time is not None]


def _to_merge(
    store: Path, base: Manifest | None, entries: Sequence[SegmentEntry], settings: LiveSettings
) -> tuple[SegmentEntry, ...]:
    """The last segments of ``base`` to merge with ``entries``: live segments without deleted documents."""
    size = sum(entry.tokens + entry.documents for entry in entries)
    chosen: list[SegmentEntry] = []
    periods = {period(entry.live_time or 0, settings) for entry in entries}
    if base is None or len(periods) > 1:
        return ()
    with open_datastore(store) as datastore:
        deleted = datastore.deleted() if base.deletions else {}
    for entry in reversed(base.segments):
        tokens = entry.tokens + entry.documents
        if (
            entry.live_time is None
            or len(deleted.get(entry.name, ()))
            or period(entry.live_time, settings) not in periods
            or tokens > min(size, settings.most_segment_tokens - size)
        ):
            break
        chosen.insert(0, entry)
        size += tokens
    return tuple(chosen)


def write_live_segments(
    workspace: Workspace, identity: StoreIdentity, pages: Iterable[Change], generation: int, settings: LiveSettings
) -> Iterator[SegmentEntry]:
    """Write the documents of ``pages`` as segments of ``generation``. A segment holds documents of one ``period``, and about
    ``most_segment_tokens`` at most."""
    numbers = count()
    for _, documents in groupby(_documents(pages), lambda document: period(document[1], settings)):
        while (entry := _write(workspace, identity, documents, generation, next(numbers), settings)) is not None:
            yield entry


def merge_live_segments(
    workspace: Workspace, entries: Sequence[SegmentEntry], generation: int, threads: int
) -> SegmentEntry:
    """One segment of the documents of ``entries``, published and new segments in order. The files of the new segments are
    removed."""
    old_folder = workspace.store / SEGMENTS_NAME
    places = [(workspace.new_segment(entry.name), old_folder / entry.name) for entry in entries]
    paths = [new if new.exists() else old for new, old in places]
    table = DocumentTableWriter()
    for entry, path in zip(entries, paths, strict=True):
        segment = _native.Segment(str(path))
        segment.verify("checksums")  # merging would write valid checksums for damaged tokens
        for source, metadata in OpenSegment(segment, entry).origins():
            table.add(source or "", metadata)
    newest = max(entry.live_time or 0 for entry in entries)
    name = workspace.segment_name(generation, len(entries), newest)
    no_documents = np.empty(0, np.uint32)
    merged = merge_segments(
        workspace.new_segment(name), paths, [no_documents] * len(paths), documents=table.finish(), threads=threads
    )
    for new, _ in places:
        new.unlink(missing_ok=True)
    return workspace.name_by_content(merged)


def period(time: int, settings: LiveSettings) -> int:
    """The number of the period that contains ``time``. A period is ``segment_seconds`` long. A segment holds documents
    of one period."""
    return time // settings.segment_seconds if settings.segment_seconds else 0


def _write(
    workspace: Workspace,
    identity: StoreIdentity,
    documents: Iterator[_Document],
    generation: int,
    number: int,
    settings: LiveSettings,
) -> SegmentEntry | None:
    """A segment of the next ``documents``; None if there are none."""
    dtype = token_dtype(identity.vocab_size)
    end = np.array([separator(dtype)], dtype)
    table, newest = DocumentTableWriter(), 0
    most_tokens = min(settings.most_segment_tokens, DEFAULT_SEGMENT_TOKENS)
    with TokenFile(workspace.tokens, dtype) as file:
        for tokens, time, origin in documents:
            file.append(tokens.astype(dtype))
            file.append(end)
            source, metadata, _ = unpack_origin(origin)
            table.add(source or "", metadata)
            newest = max(newest, time)
            if file.tokens >= most_tokens:
                break
        if file.tokens == 0:
            return None
        entry = write_segment(
            workspace.new_segment(workspace.segment_name(generation, number, newest)),
            file.mapped(),
            vocab_size=identity.vocab_size,
            order_depth=identity.order_depth,
            fingerprint=identity.tokenizer,
            documents=table.finish(),
            threads=settings.threads,
        )
        return workspace.name_by_content(entry)


def _documents(pages: Iterable[Change]) -> Iterator[_Document]:
    for page in pages:
        yield from zip(page.texts(), page.times.tolist(), page.origins, strict=True)
