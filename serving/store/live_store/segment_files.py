"""Writes live documents as segment files, and merges such files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from suffolk.build_index.options import DEFAULT_SEGMENT_TOKENS
from suffolk.build_index.token_file import TokenFile
from suffolk.build_index.workspace import Workspace
from suffolk.datastore import _native
from suffolk.datastore.documents import DocumentTableWriter
from suffolk.datastore.manifest import SEGMENTS_NAME
from suffolk.datastore.open_segment import OpenSegment
from suffolk.datastore.segment import SegmentEntry, merge_segments, separator, token_dtype, write_segment
from suffolk.serving.store.live_store.identity import StoreIdentity
from suffolk.serving.store.live_store.origin import unpack_origin
from suffolk.serving.store.live_store.record import Change
from suffolk.serving.store.live_store.settings import LiveSettings

_Document = tuple[npt.NDArray[Any], int, bytes]
"""Tokens, time and origin."""


def write_live_segments(
    workspace: Workspace, identity: StoreIdentity, pages: Iterable[Change], generation: int, settings: LiveSettings
) -> Iterator[SegmentEntry]:
    """Write the documents of ``pages`` as segments of ``generation``: each of one period, and of about the largest size."""
    numbers = count()
    for _, documents in groupby(_documents(pages), lambda document: period(document[1], settings)):
        while (entry := _write(workspace, identity, documents, generation, next(numbers), settings)) is not None:
            yield entry


def merge_live_segments(
    workspace: Workspace, entries: Sequence[SegmentEntry], generation: int, threads: int
) -> SegmentEntry:
    """One segment of the documents of ``entries``, published ones and new ones, in order. The new ones' files are removed."""
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
    """The number of the period of ``segment_seconds`` that ``time`` is in. A segment holds documents of one period."""
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
