"""Compacts a datastore: merges segments, and removes deleted documents from the files."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np

from suffolk.build_index.options import MAX_SEGMENT_TOKENS
from suffolk.build_index.progress import WorkProgress, segment_progress
from suffolk.build_index.token_file import write_segments
from suffolk.build_index.workspace import Workspace, open_workspace
from suffolk.datastore.checks import check_range
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.documents import NO_METADATA, DocumentTableWriter, Origin
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, read_manifest
from suffolk.datastore.open_segment import Deleted
from suffolk.datastore.segment import SegmentEntry, merge_segments
from suffolk.datastore.settings import MAX_THREADS


@dataclass(frozen=True, slots=True)
class CompactReport:
    """The outcome of a compaction.

    Attributes:
        store: the datastore's folder.
        generation: number of the published generation; a new one only if ``changed``.
        changed: whether a new generation was published.
        segments_before, segments: number of segments before and after.
        live_segments: how many of ``segments`` a live store published.
        documents, tokens: number of documents and of tokens in the datastore.
        removed_documents, removed_tokens: number of deleted documents, and of their tokens, removed from the files.
        bytes_before, bytes: size of all segment files before and after.
        seconds: wall time.
    """

    store: str
    generation: int
    changed: bool
    segments_before: int
    segments: int
    live_segments: int
    documents: int
    tokens: int
    removed_documents: int
    removed_tokens: int
    bytes_before: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbouring segments to merge into one segment of ``tokens`` tokens, separators included.

    A segment that a live store published forms its own group, because the age of its documents must stay known.
    """

    entries: tuple[SegmentEntry, ...]
    tokens: int
    live_time: int | None = None

    def __add__(self, other: _Group) -> _Group:
        return _Group(self.entries + other.entries, self.tokens + other.tokens)


def compact(
    store: str | Path, segments: int = 1, threads: int = 0, progress: WorkProgress | None = None
) -> CompactReport:
    """Merge the segments of ``store`` until ``segments`` are left, or a merged one would exceed ``MAX_SEGMENT_TOKENS`` tokens.

    Neighbours are merged, the smallest first. Documents keep their order, and no answer changes. Segments that a live store
    published are neither merged nor counted, because the live store evicts them by their age. Deleted documents are removed from
    all segments. If all documents are deleted, one empty document is left, because a generation holds at least one segment. The
    checksums of all files are verified first. A crash or Ctrl-C at any point leaves the old generation or the new one.

    Args:
        segments: 1 or more.
        threads: number of threads that merge; 0: one per core.

    Memory: 1/8 byte a token, twice the document table of the largest new segment, and some MiB a thread.
    Disk: the new segments, while the old ones still exist.

    Raises:
        InvalidArgument: ``segments`` is below 1, ``threads`` is out of range, or a new segment's document table would be too large.
        PermissionDenied: the datastore's folder cannot be written.
        NotFound, Corruption, Unsupported: as ``open_datastore``; a damaged file is named.
        Unavailable: another process writes to the datastore, or the datastore holds an interrupted build.
        ResourceExhausted: the disk is full.
    """
    check_range("segments", segments, 1)
    check_range("threads", threads, 0, MAX_THREADS)
    path, began = Path(store), time.monotonic()
    read_manifest(path)  # raises if there is no datastore, before a folder is created
    with open_workspace(path) as workspace, open_datastore(path) as datastore:
        deleted = datastore.deleted()
        groups = _group(_left(datastore, deleted), segments)
        before = manifest = datastore.manifest
        if before.deletions or len(groups) < len(before.segments):
            workspace.refuse_unfinished("compact")
            show = progress or WorkProgress()
            manifest = workspace.publish_change(lambda: _merge(workspace, datastore, groups, deleted, threads, show))
        facts = datastore.info()
        return CompactReport(
            store=str(path),
            generation=manifest.generation,
            changed=manifest is not before,
            segments_before=len(before.segments),
            segments=len(manifest.segments),
            live_segments=sum(entry.live_time is not None for entry in manifest.segments),
            documents=sum(entry.documents for entry in manifest.segments),
            tokens=sum(entry.tokens for entry in manifest.segments),
            removed_documents=facts["deleted_documents"],
            removed_tokens=facts["deleted_tokens"],
            bytes_before=sum(entry.bytes for entry in before.files()),
            bytes=sum(entry.bytes for entry in manifest.files()),
            seconds=time.monotonic() - began,
        )


def _left(datastore: Datastore, deleted: Deleted) -> list[_Group]:
    """Return one group for each segment, without the segment's deleted documents."""
    groups = []
    for entry in datastore.manifest.segments:
        gone = (datastore.read_document(entry.name, index) for index in deleted[entry.name].tolist())
        left = entry.tokens + entry.documents - sum(len(tokens) + 1 for tokens in gone)
        groups.append(_Group((entry,), left, entry.live_time))
    return groups


def _group(groups: list[_Group], wanted: int) -> list[_Group]:
    """Join neighbours that are not live, the smallest pair first, until ``wanted`` groups are left or every pair is too large."""
    while sum(group.live_time is None for group in groups) > wanted:
        pairs = [
            (one.tokens + other.tokens, place)
            for place, (one, other) in enumerate(pairwise(groups))
            if one.live_time is other.live_time is None
        ]
        tokens, first = min(pairs, default=(math.inf, 0))
        if tokens > MAX_SEGMENT_TOKENS:
            break
        groups = [*groups[:first], groups[first] + groups[first + 1], *groups[first + 2 :]]
    return groups


def _merge(
    workspace: Workspace,
    datastore: Datastore,
    groups: list[_Group],
    deleted: Deleted,
    threads: int,
    progress: WorkProgress,
) -> Manifest:
    """The next generation, with a new segment of each group that still has documents. A group of one unchanged segment keeps this
    segment. All checksums are verified first. Without this check, damaged tokens would get valid checksums."""
    manifest = datastore.manifest
    checked = {entry.name: entry.tokens for entry in manifest.files()}
    datastore.verify("checksums", segment_progress(progress, "checking", checked))
    names = [
        workspace.segment_name(manifest.generation + 1, number, group.live_time) for number, group in enumerate(groups)
    ]
    sizes = {name: group.tokens for name, group in zip(names, groups, strict=True)}
    report = segment_progress(progress, "merging", sizes)
    places = {entry.name: number for number, group in enumerate(groups) for entry in group.entries}
    merged: list[SegmentEntry] = []
    for number, origins in groupby(datastore.origins(), lambda known: places[known[0]]):
        entries = groups[number].entries
        if len(entries) == 1 and len(deleted[entries[0].name]) == 0:
            merged.append(entries[0])
            continue
        segment = merge_segments(
            workspace.new_segment(names[number]),
            [workspace.store / SEGMENTS_NAME / entry.name for entry in entries],
            [deleted[entry.name] for entry in entries],
            documents=_table(origin for _, _, origin in origins),
            threads=threads,
            progress=partial(report, names[number]),
        )
        merged.append(workspace.name_by_content(segment))
    if not merged:
        empty = (np.empty(0, np.int32), None, NO_METADATA, None)
        merged.extend(write_segments(workspace, manifest.next(), [iter([empty])], threads=1))
    return manifest.next(segments=tuple(merged), deletions=())


def _table(origins: Iterable[Origin]) -> bytes:
    """The document table of these documents; empty if no source is recorded."""
    table, known = DocumentTableWriter(), False
    for source, metadata in origins:
        known = known or source is not None
        table.add(source, metadata)
    return table.finish() if known else b""
