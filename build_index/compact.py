"""Compacts a datastore: merges its segments into few, and removes deleted documents from the files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.build_index.options import MAX_SEGMENT_TOKENS
from suffolk.build_index.workspace import Workspace, open_workspace
from suffolk.datastore.datastore import MAX_THREADS, Datastore, open_datastore
from suffolk.datastore.deletions import Deleted
from suffolk.datastore.documents import DocumentTableWriter, Origin
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, read_manifest
from suffolk.datastore.segment import SegmentEntry, merge_segments

CompactProgress = Callable[[str, float, int], None]
"""Called with the task, the share of it that is done (0..1), and its size in tokens."""


@dataclass(frozen=True, slots=True)
class CompactReport:
    """The outcome of a compaction.

    Attributes:
        store: the datastore's folder.
        generation: the live one; unchanged unless ``changed``.
        changed: whether there was something to do.
        segments_before, segments: number of segments before and after.
        documents, tokens: those of the datastore, which compaction does not change.
        removed_documents, removed_tokens: deleted ones that were removed from the files.
        bytes_before, bytes: size of all segment files before and after.
        seconds: wall time.
    """

    store: str
    generation: int
    changed: bool
    segments_before: int
    segments: int
    documents: int
    tokens: int
    removed_documents: int
    removed_tokens: int
    bytes_before: int
    bytes: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbouring segments that become one of ``tokens`` tokens, separators included."""

    entries: tuple[SegmentEntry, ...]
    tokens: int

    def __add__(self, other: _Group) -> _Group:
        return _Group(self.entries + other.entries, self.tokens + other.tokens)


def compact(
    store: str | Path, segments: int = 1, threads: int = 0, progress: CompactProgress | None = None
) -> CompactReport:
    """Merge the segments of ``store`` into ``segments`` or fewer, as long as none exceeds 1.9 billion tokens
    (``MAX_SEGMENT_TOKENS``).

    Neighbours are merged, the smallest first; documents keep their order, and no answer changes. The checksums of all files are
    verified first. A crash or Ctrl-C at any point leaves the old generation or the new one.

    Args:
        segments: 1 or more.
        threads: for merging; 0 takes every core.

    Memory: 1/8 byte a token, twice the document table of the largest new segment, and some MiB a thread.
    Disk: the new segments beside the old ones.

    Raises:
        InvalidArgument: ``segments`` is below 1, all documents are deleted, or a new segment's document table would be too large.
        NotFound, Corruption, Unsupported: as ``open_datastore``; a damaged file is named.
        Unavailable: another process writes to the datastore, or an interrupted build waits in it.
        ResourceExhausted: the disk is full.
    """
    if segments < 1:
        raise InvalidArgument(f"segments: {segments} is not allowed; give 1 or more")
    if not 0 <= threads <= MAX_THREADS:
        raise InvalidArgument(f"threads: {threads} is not allowed; give 0 (every core) to {MAX_THREADS}")
    path, began = Path(store), time.monotonic()
    read_manifest(path)  # refuses before a folder is made
    with open_workspace(path) as workspace, open_datastore(path) as datastore:
        deleted = datastore.deleted()
        groups = _group(_left(datastore, deleted), segments)
        before = manifest = datastore.manifest
        if before.deletions or len(groups) < len(before.segments):
            workspace.refuse_unfinished("compact")
            if not datastore.info()["documents"]:
                raise InvalidArgument(
                    f"{path}: all documents are deleted, and a datastore holds at least one; remove the folder instead"
                )
            manifest = _publish(workspace, datastore, groups, deleted, threads, progress)
        facts = datastore.info()
        return CompactReport(
            store=str(path),
            generation=manifest.generation,
            changed=manifest is not before,
            segments_before=len(before.segments),
            segments=len(manifest.segments),
            documents=facts["documents"],
            tokens=facts["tokens"],
            removed_documents=facts["deleted_documents"],
            removed_tokens=facts["deleted_tokens"],
            bytes_before=sum(entry.bytes for entry in before.files()),
            bytes=sum(entry.bytes for entry in manifest.files()),
            seconds=time.monotonic() - began,
        )


def _left(datastore: Datastore, deleted: Deleted) -> list[_Group]:
    """Each segment as a group of its own, without its deleted documents."""
    return [
        _Group((entry,), entry.tokens + entry.documents - _tokens_of(datastore, entry.name, deleted[entry.name]))
        for entry in datastore.manifest.segments
    ]


def _tokens_of(datastore: Datastore, segment: str, documents: npt.NDArray[np.uint32]) -> int:
    return sum(len(datastore.read_document(segment, index)) + 1 for index in documents.tolist())


def _group(groups: list[_Group], wanted: int) -> list[_Group]:
    """Join neighbours, the smallest pair first, until ``wanted`` are left or every pair would be too large."""
    while len(groups) > wanted:
        pairs = [(groups[i].tokens + groups[i + 1].tokens, i) for i in range(len(groups) - 1)]
        tokens, first = min(pairs)
        if tokens > MAX_SEGMENT_TOKENS:
            break
        groups = [*groups[:first], groups[first] + groups[first + 1], *groups[first + 2 :]]
    return groups


def _publish(
    workspace: Workspace,
    datastore: Datastore,
    groups: list[_Group],
    deleted: Deleted,
    threads: int,
    progress: CompactProgress | None,
) -> Manifest:
    def make() -> Manifest:
        _check(datastore, progress)
        segments = tuple(_merge(workspace, datastore, groups, deleted, threads, progress))
        return datastore.manifest.next(segments=segments, deletions=())

    return workspace.publish_change(make)


def _check(datastore: Datastore, progress: CompactProgress | None) -> None:
    """Verify all checksums, because merging would write valid ones for damaged tokens."""
    files = datastore.manifest.files()
    tokens, done = sum(entry.tokens for entry in files), 0

    def report(name: str, share: float) -> None:
        nonlocal done
        entry = next(entry for entry in files if entry.name == name)
        if progress is not None:
            progress("checking", (done + share * entry.tokens) / max(1, tokens), tokens)
        if share >= 1:
            done += entry.tokens

    datastore.verify("checksums", report)


def _merge(
    workspace: Workspace,
    datastore: Datastore,
    groups: list[_Group],
    deleted: Deleted,
    threads: int,
    progress: CompactProgress | None,
) -> list[SegmentEntry]:
    """The segment of each group of which something is left; a segment that stays alone and whole stays as it is."""
    places = {entry.name: number for number, group in enumerate(groups) for entry in group.entries}
    total, done = sum(group.tokens for group in groups), 0
    entries: list[SegmentEntry] = []
    for number, origins in groupby(datastore.origins(), lambda known: places[known[0]]):
        group = groups[number]
        names = [entry.name for entry in group.entries]
        if len(names) == 1 and len(deleted[names[0]]) == 0:
            entries.append(group.entries[0])
        else:
            path = workspace.new_segment(workspace.segment_name(datastore.manifest.generation + 1, number))
            report = None
            if progress is not None:
                report = lambda share, done=done, group=group: progress(  # noqa: E731
                    "merging", (done + share * group.tokens) / total, total
                )
            entries.append(
                merge_segments(
                    path,
                    [workspace.store / SEGMENTS_NAME / name for name in names],
                    [deleted[name] for name in names],
                    documents=_table(origin for _, _, origin in origins),
                    threads=threads,
                    progress=report,
                )
            )
        done += group.tokens
    return entries


def _table(origins: Iterable[Origin]) -> bytes:
    """The document table of these documents; empty if no source is recorded."""
    table, known = DocumentTableWriter(), False
    for source, metadata in origins:
        known = known or source is not None
        table.add(source or "", metadata)
    return table.finish() if known else b""
