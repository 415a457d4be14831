"""Deletes documents: publishes a generation with deletion segments. No existing file is rewritten."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from suffolk.build_index.token_file import write_segments
from suffolk.build_index.workspace import Workspace, open_workspace
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.manifest import read_manifest
from suffolk.datastore.open_segment import deleted_place, deletion_metadata
from suffolk.datastore.query import parse_query
from suffolk.datastore.segment import SegmentEntry

Sources = dict[tuple[str, int], str | None]
"""Segment name and index of a document -> its source."""


@dataclass(frozen=True, slots=True)
class DeletionReport:
    """The outcome of a deletion.

    Attributes:
        store: the datastore's folder.
        generation: number of the published generation; unchanged if nothing was deleted.
        documents, tokens: number of documents and of tokens that this call deleted, or would delete without
            ``dry_run``.
        left_documents, left_tokens: number of documents and of tokens that remain.
        unknown_ids: the given ids that no document has.
    """

    store: str
    generation: int
    documents: int
    tokens: int
    left_documents: int
    left_tokens: int
    unknown_ids: tuple[str, ...]


def delete(
    store: str | Path,
    ids: Sequence[str] = (),
    where: Sequence[str] = (),
    dry_run: bool = False,
    threads: int = 0,
    fields: Collection[str] = (),
) -> DeletionReport:
    """Delete the documents whose source is in ``ids`` and that meet all conditions of ``where``.

    A datastore opened later answers as if the documents had never been in it. Their tokens stay in the segment files until
    ``suffolk.build_index.compact`` removes them. A crash at any point leaves the old generation or the new one. The checksums of
    all files are verified first.

    Args:
        store: the datastore's folder.
        ids: sources of documents, as whole strings; if empty, documents of every source.
        where: conditions, for example ``license=gpl-3.0`` (``suffolk.datastore.query.parse_query``).
        dry_run: count the documents, but delete none.
        threads: number of threads that sort; 0: one per core.
        fields: further fields that a condition may name, even if no document has them.

    Memory: that of building a segment of the deleted tokens (at most ``DEFAULT_SEGMENT_TOKENS``), and an entry for each document.

    Raises:
        InvalidArgument: neither ids nor conditions are given, a condition cannot be parsed, or no document has a condition's
            field.
        NotFound, Corruption, Unsupported: as ``open_datastore``.
        PermissionDenied: the datastore's folder cannot be written.
        Unavailable: another process writes to the datastore, or the datastore holds an interrupted build.
        ResourceExhausted: the disk is full.
    """
    path = Path(store)
    query = parse_query(ids, where)
    read_manifest(path)  # raises if there is no datastore, before a folder is created
    with open_workspace(path) as workspace, open_datastore(path) as datastore:
        chosen: Sources = {}
        known, sources = {"source", *fields}, set()
        for segment, index, found in datastore.origins():
            known.update(found.metadata)
            sources.add(found.source)
            if query.matches(found):
                chosen[segment, index] = found.source
        query.require_fields(known)
        tokens = sum(len(datastore.read_document(*place)) for place in chosen)
        generation = datastore.manifest.generation
        if chosen and not dry_run:
            workspace.refuse_unfinished("delete")
            datastore.verify("checksums")  # a deletion segment with damaged tokens would make counts wrong permanently
            every = deleted_sources(datastore) | chosen  # written again, so that deletion segments are few
            published = workspace.publish_change(
                lambda: datastore.manifest.next(deletions=write_deletions(workspace, datastore, every, threads))
            )
            generation = published.generation
        facts = datastore.info()
        return DeletionReport(
            store=str(path),
            generation=generation,
            documents=len(chosen),
            tokens=tokens,
            left_documents=facts["documents"] - len(chosen),
            left_tokens=facts["tokens"] - tokens,
            unknown_ids=tuple(sorted(set(ids).difference(source for source in sources if source is not None))),
        )


def deleted_sources(datastore: Datastore, without: Collection[str] = ()) -> Sources:
    """Return the documents that are already deleted, except documents of the segments in ``without``."""
    places = ((deleted_place(found), found.source) for found in datastore.deletion_origins())
    return {place: source for place, source in places if place[0] not in without}


def write_deletions(
    workspace: Workspace, datastore: Datastore, sources: Sources, threads: int
) -> tuple[SegmentEntry, ...]:
    """Write deletion segments of the documents in ``sources``: one segment, or several if they are many."""
    documents = (
        (datastore.read_document(*place), sources[place], deletion_metadata(*place), None) for place in sorted(sources)
    )
    return tuple(write_segments(workspace, datastore.manifest.next(), [documents], threads))
