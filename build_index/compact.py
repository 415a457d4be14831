"""Compacts a datastore: merges segments, and removes deleted documents from the files."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt

from suffolk.build_index.options import MAX_SEGMENT_TOKENS
from suffolk.build_index.progress import SilentProgress, WorkProgress
from suffolk.build_index.workspace import Workspace, open_workspace
from suffolk.datastore.datastore import MAX_THREADS, Datastore, open_datastore
from suffolk.datastore.deletions import Deleted
from suffolk.datastore.documents import DocumentTableWriter, Origin
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, read_manifest
from suffolk.datastore.segment import SegmentEntry, merge_segments


@dataclass(frozen=True, slots=True)
class CompactReport:
    """The outcome of a compaction.

    Attributes:
        store: the datastore's folder.
        generation: number of the published generation; a new one only if ``changed``.
        changed: whether a new generation was published.
        segments_before, segments: number of segments before and after.
        documents, tokens: number of documents and of tokens in the datastore. Compaction does not change them.
        removed_documents, removed_tokens: number of deleted documents, and of their tokens, removed from the files.
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


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbouring segments to merge into one segment of ``tokens`` tokens, separators included."""

    entries: tuple[SegmentEntry, ...]
    tokens: int

    def __add__(self, other: _Group) -> _Group:
        return _Group(self.entries + other.entries, self.tokens + other.tokens)


def compact(
    store: str | Path, segments: int = 1, threads: int = 0, progress: WorkProgress | None = None
) -> CompactReport:
    """Merge the segments of ``store`` into at most ``segments``. A merged segment has at most ``MAX_SEGMENT_TOKENS`` tokens.

    Neighbours are merged, the smallest first. Documents keep their order, and no answer changes. The checksums of all files are
    verified first. A crash or Ctrl-C at any point leaves the old generation or the new one.

    Args:
        segments: 1 or more.
        threads: number of threads that merge; 0: one per core.

    Memory: 1/8 byte a token, twice the document table of the largest new segment, and some MiB a thread.
    Disk: the new segments beside the old ones.

    Raises:
        InvalidArgument: ``segments`` is below 1, all documents are deleted, or a new segment's document table would be too large.
        NotFound, Corruption, Unsupported: as ``open_datastore``; a damaged file is named.
        Unavailable: another process writes to the datastore, or it holds an interrupted build.
        ResourceExhausted: the disk is full.
    """
    if segments < 1:
        raise InvalidArgument(f"segments: {segments} is not allowed; give 1 or more")
    if not 0 <= threads <= MAX_THREADS:
        raise InvalidArgument(f"threads: {threads} is not allowed; give 0 (every core) to {MAX_THREADS}")
    path, began = Path(store), time.monotonic()
    read_manifest(path)  # raises before a folder is made
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
            work = _Compaction(workspace, datastore, groups, deleted, threads, progress or SilentProgress())
            manifest = workspace.publish_change(work.run)
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


@dataclass(frozen=True, slots=True)
class _Compaction:
    """The work between opening the datastore and publishing the new generation."""

    workspace: Workspace
    datastore: Datastore
    groups: list[_Group]
    deleted: Deleted
    threads: int
    progress: WorkProgress

    def run(self) -> Manifest:
        """Verify all checksums, because merging would write valid ones for damaged tokens; then merge."""
        sizes = {entry.name: entry.tokens for entry in self.datastore.manifest.files()}
        self.datastore.verify("checksums", self._reporter("checking", sizes))
        return self.datastore.manifest.next(segments=tuple(self._merge()), deletions=())

    def _merge(self) -> list[SegmentEntry]:
        """The new segment of each group that still has documents. A segment that stays alone and whole is kept."""
        generation = self.datastore.manifest.generation + 1
        names = [self.workspace.segment_name(generation, number) for number in range(len(self.groups))]
        report = self._reporter("merging", {name: group.tokens for name, group in zip(names, self.groups, strict=True)})
        places = {entry.name: number for number, group in enumerate(self.groups) for entry in group.entries}
        merged: list[SegmentEntry] = []
        for number, origins in groupby(self.datastore.origins(), lambda known: places[known[0]]):
            entries = self.groups[number].entries
            if len(entries) == 1 and len(self.deleted[entries[0].name]) == 0:
                merged.append(entries[0])
                continue
            segment = merge_segments(
                self.workspace.new_segment(names[number]),
                [self.workspace.store / SEGMENTS_NAME / entry.name for entry in entries],
                [self.deleted[entry.name] for entry in entries],
                documents=_table(origin for _, _, origin in origins),
                threads=self.threads,
                progress=partial(report, names[number]),
            )
            merged.append(self.workspace.name_by_content(segment))
        return merged

    def _reporter(self, work: str, sizes: Mapping[str, int]) -> Callable[[str, float], None]:
        """A function that is called with a segment's name and the share of it that is done; ``sizes`` are in tokens."""
        total = sum(sizes.values())
        before = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))

        def report(name: str, share: float) -> None:
            done = before[name] + share * sizes[name]
            self.progress.advance(work, done / max(1, total), f"{total:,} tokens")

        return report


def _table(origins: Iterable[Origin]) -> bytes:
    """The document table of these documents; empty if no source is recorded."""
    table, known = DocumentTableWriter(), False
    for source, metadata in origins:
        known = known or source is not None
        table.add(source or "", metadata)
    return table.finish() if known else b""
