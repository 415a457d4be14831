"""Writes live documents as segment files, merges these files, publishes generations with them, and evicts them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np

from suffolk.build_index.delete import deleted_sources, write_deletions
from suffolk.build_index.options import DEFAULT_SEGMENT_TOKENS
from suffolk.build_index.token_file import Document, write_segments
from suffolk.build_index.workspace import Workspace, open_workspace
from suffolk.datastore import _native
from suffolk.datastore.datastore import open_datastore
from suffolk.datastore.documents import DocumentTableWriter
from suffolk.datastore.failpoints import failpoint
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, now
from suffolk.datastore.open_segment import OpenSegment
from suffolk.datastore.readers import READERS_NAME
from suffolk.datastore.segment import SegmentEntry, merge_segments
from suffolk.serving.store.live_store.contents import unpack_origin
from suffolk.serving.store.live_store.identity import LIVE_NAME, StoreIdentity, published
from suffolk.serving.store.live_store.record import Change
from suffolk.serving.store.live_store.settings import LiveSettings


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
        Unavailable: another process writes to the datastore, or an interrupted build is in it.
        ResourceExhausted: the disk is full.
    """
    with open_workspace(store, (LIVE_NAME, READERS_NAME)) as workspace:
        workspace.refuse_unfinished("flush")
        base = published(store)
        if base is not None:
            identity.require(base, store)
        through, pages = take()

        def make() -> Manifest:
            if base is None:
                new = Manifest(1, (), identity.vocab_size, identity.order_depth, identity.tokenizer, now())
            else:
                new = base.next()
            periods = groupby(_documents(pages), lambda document: period(document[3] or 0, settings))
            most_tokens = min(settings.most_segment_tokens, DEFAULT_SEGMENT_TOKENS)
            groups = (group for _, group in periods)
            entries = tuple(write_segments(workspace, new, groups, settings.threads, most_tokens))
            failpoint("flush.written")
            merged = _to_merge(store, base, entries, settings)
            if merged:
                entries = (merge_live_segments(workspace, (*merged, *entries), new.generation, settings.threads),)
                failpoint("flush.merged")
            kept = new.segments[: len(new.segments) - len(merged)]
            return replace(new, segments=(*kept, *entries), live_sequence=through)

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
            table.add(source, metadata)
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


def _documents(pages: Iterable[Change]) -> Iterator[Document]:
    for page in pages:
        for tokens, time, origin in zip(page.texts(), page.times.tolist(), page.origins, strict=True):
            source, metadata, _ = unpack_origin(origin)
            yield tokens, source, metadata, time
