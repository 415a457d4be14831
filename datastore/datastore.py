"""A datastore on disk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from suffolk.datastore import _native
from suffolk.datastore.checks import check_choice, check_range
from suffolk.datastore.context_query import ContextQuery, OccurrenceQuery, Tokens
from suffolk.datastore.documents import Document, Occurrence, Origin
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, Unavailable, damaged
from suffolk.datastore.host_memory import host_memory
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, read_manifest, tokenizer_name
from suffolk.datastore.open_segment import Deleted, OpenSegment, deleted_place, open_segment, read_deleted
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.settings import MAX_THREADS
from suffolk.datastore.tokenizer import read_stored_tokenizer

RESIDENCIES = ("auto", "mmap", "warm", "locked")
"""How the files of a datastore are kept in memory; see ``open_datastore``."""
_SHARE = 0.25
"""With residency "auto", the files are read into memory if they take at most this share of the free memory."""


def open_datastore(
    path: str | Path, residency: str = "mmap", threads: int = 0, previous: Datastore | None = None
) -> Datastore:
    """Open the latest generation (published state) of the datastore at ``path``. The time does not depend on its size, except with
    residency ``locked``.

    Args:
        residency: how files are kept in memory.
            ``mmap``: the system reads pages as queries touch them, and drops them when it needs memory. A thread reads ahead
            the sections with which every query begins. They take 1/8 byte a token.
            ``warm``: the same as ``mmap``, except that the thread then reads all files. Use it if the datastore fits
            into memory.
            ``auto``: ``warm`` if the files take at most a quarter of the free memory, else ``mmap``.
            ``locked``: all files are read before this returns, and stay in memory until the datastore is closed.
        threads: threads that share one batch, including the calling thread, 1..1024; 0: one per core that the caller may run on.
            The first batch of more than eight contexts starts the threads. A process that is forked later uses one thread.
        previous: an open generation of the same datastore. Segments that both generations have are mapped once, and the tokenizer
            is not read again.

    Raises:
        InvalidArgument: ``residency`` or ``threads`` is not allowed.
        NotFound: there is no datastore.
        Corruption: a file is damaged or missing, or differs from its entry in the manifest.
        Unsupported: a newer version wrote a file.
        PermissionDenied: a file cannot be read.
        ResourceExhausted: the system refuses to lock that much memory.
    """
    while True:
        manifest = read_manifest(Path(path))
        try:
            return Datastore(Path(path), manifest, residency, threads, previous)
        except Corruption:
            if read_manifest(Path(path)).generation == manifest.generation:
                raise  # otherwise a newer generation was published, and removed this one's files


class Datastore(Retriever):
    """One generation of a datastore, mapped into memory. Thread-safe.

    The object keeps the generation that it opened, even after a newer one is published. No answer or count includes deleted
    documents.
    """

    def __init__(
        self,
        path: Path,
        manifest: Manifest,
        residency: str = "mmap",
        threads: int = 0,
        previous: Datastore | None = None,
    ) -> None:
        check_choice("residency", residency, RESIDENCIES)
        check_range("threads", threads, 0, MAX_THREADS)
        if residency == "auto":
            size = sum(entry.bytes for entry in manifest.files())
            residency = "warm" if size <= _SHARE * host_memory() else "mmap"
        self.path = path
        self.manifest = manifest
        self._segments: list[OpenSegment]
        self._deletions: list[OpenSegment]
        shared = {} if previous is None else {each.entry: each for each in previous._segments + previous._deletions}
        self._segments, self._deletions = (
            [open_segment(path / SEGMENTS_NAME, entry, manifest, shared.get(entry)) for entry in entries]
            for entries in (manifest.segments, manifest.deletions)
        )
        self._tokenizer: Tokenizer | None = None
        if previous is not None and previous.manifest.tokenizer == manifest.tokenizer:
            self._tokenizer = previous._tokenizer
        files = [each.native for each in self._segments + self._deletions if each.entry not in shared]
        if residency == "locked":
            for file in files:
                file.lock()
        else:
            _native.warm(files, whole=residency == "warm")
        self._native: _native.Searcher | None = self._make_searcher(threads=threads)
        self._locator = None if self._deletions else self._native

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def vocab_size(self) -> int:
        return self.manifest.vocab_size

    def warm_up(self, contexts: Sequence[Tokens]) -> None:
        """Draft after ``contexts``. This maps the pages that later drafts touch. Invalid contexts are ignored."""
        with contextlib.suppress(InvalidArgument):
            self.draft_batch(contexts)

    def native(self) -> _native.Searcher:
        if self._native is None:
            raise Unavailable(f"the datastore {self.path} is closed; open it again")
        return self._native

    def clock(
        self, contexts: Sequence[Tokens], max_match: int, min_match: int, max_depth: int, max_nodes: int
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Measure the seconds of each context's lookup and of its draft: two float64[contexts]. Only time in C++ counts."""
        return self.native().clock(contexts, max_match, min_match, max_depth, max_nodes)

    def count_documents(self, query: ContextQuery, most: int) -> list[int]:
        """See ``Retriever.count_documents``. Raises Corruption if the list of deleted documents is damaged."""
        if query.group is not None or query.scope is not None:
            self.group_keys(query)
        return self._live_locator().count_documents(query.contexts, most)

    def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """See ``Retriever.occurrences``.

        Raises:
            Corruption: a document table is damaged.
        """
        query.check(self.native().order_depth)
        if query.group is not None or query.scope is not None:
            self.group_keys(query.whole)
        found = self._live_locator().occurrences(query.pattern, query.limit)
        length = len(query.pattern) + query.context
        places = []
        for number, place in found:
            query.before_place()
            places.append(self._segments[number].occurrence(place, query.before, length, self.name))
        return places

    def documents(self) -> Iterator[Document]:
        """Yield every document, in order.

        Raises:
            Corruption: a document table is damaged.
        """
        for name, index, (source, metadata) in self.origins():
            yield Document(source, metadata, self.read_document(name, index))

    def origins(self) -> Iterator[tuple[str, int, Origin]]:
        """Yield the segment, index and origin of every document, in order.

        Raises:
            Corruption: a document table is damaged.
        """
        deleted = self.deleted()
        for segment in self._segments:
            name = segment.entry.name
            gone = set(deleted[name].tolist())
            for index, origin in enumerate(segment.origins()):
                if index not in gone:
                    yield name, index, origin

    def read_document(self, segment: str, index: int) -> npt.NDArray[np.uint32]:
        """The tokens (uint32[n]) of document ``index`` of the live segment ``segment``, even if it is deleted.

        Raises:
            NotFound: no live segment has the name ``segment``.
            InvalidArgument: the segment has no document ``index``.
        """
        self.native()
        for each in self._segments:
            if each.entry.name == segment:
                return each.read_document(index)
        raise NotFound(f"{self.path} has no live segment {segment!r}; suffolk info lists them")

    def deleted(self) -> Deleted:
        """The deleted documents of each live segment, by the segment's name.

        Raises:
            Corruption: the table of a deletion segment is damaged, or names a document that does not exist.
        """
        return read_deleted(self.manifest.segments, self.deletion_origins())

    def open_segments(self) -> Sequence[OpenSegment]:
        """The mapped live segments."""
        self.native()
        return self._segments

    def native_files(self) -> tuple[list[_native.Segment], list[_native.Segment]]:
        """The mapped live segments and deletion segments. They stay mapped while the returned objects are in use."""
        self.native()
        live, deletions = ([each.native for each in files] for files in (self._segments, self._deletions))
        return live, deletions

    def deletion_origins(self) -> Iterator[Origin]:
        """Yield the origins of the documents in deletion segments (``suffolk.datastore.open_segment.deleted_place``).

        Raises:
            Corruption: a document table is damaged.
        """
        self.native()
        for segment in self._deletions:
            yield from segment.origins()

    def info(self) -> dict[str, Any]:
        """Facts: path, generation, tokens, documents, bytes, vocab_size, order_depth, tokenizer, created, settings, segments.

        Further facts are bytes_per_token, and token_width, the bytes of a token id in a file. ``tokens`` and ``documents``
        exclude ``deleted_tokens`` and ``deleted_documents``.
        """
        self.native()
        manifest = self.manifest
        deleted_tokens = sum(entry.tokens for entry in manifest.deletions)
        deleted_documents = sum(entry.documents for entry in manifest.deletions)
        tokens = sum(entry.tokens for entry in manifest.segments) - deleted_tokens
        size = sum(entry.bytes for entry in manifest.files())
        facts = [segment.native.facts() for segment in self._segments]
        return {
            "path": str(self.path),
            "generation": manifest.generation,
            "tokens": tokens,
            "documents": sum(entry.documents for entry in manifest.segments) - deleted_documents,
            "deleted_tokens": deleted_tokens,
            "deleted_documents": deleted_documents,
            "bytes": size,
            "bytes_per_token": size / tokens if tokens else 0.0,
            "token_width": max(fact["token_width"] for fact in facts),
            "vocab_size": manifest.vocab_size,
            "order_depth": manifest.order_depth,
            "tokenizer": manifest.tokenizer,
            "created": manifest.created,
            "settings": manifest.settings,
            "segments": [
                {
                    "name": entry.name,
                    "tokens": entry.tokens,
                    "documents": entry.documents,
                    "bytes": entry.bytes,
                    "writer": fact["writer"],
                }
                for entry, fact in zip(manifest.segments, facts, strict=True)
            ],
        }

    def resident_bytes(self) -> int | None:
        """Bytes of the segment files in the page cache, whichever process read them.

        Files above 4 GiB are estimated from a sample of a million pages.
        None if the system refuses to answer. It answers only to the files' owner and to users with write permission.
        """
        self.native()
        sizes = [segment.native.resident_bytes() for segment in (*self._segments, *self._deletions)]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def tokenizer_path(self) -> Path | None:
        """The tokenizer file of this generation; None if it was built without a tokenizer, or the file is missing."""
        if self.manifest.tokenizer is None:
            return None
        path = self.path / tokenizer_name(self.manifest.tokenizer)
        return path if path.is_file() else None

    def tokenizer(self) -> Tokenizer | None:
        """See ``Retriever.tokenizer``.

        Raises:
            Corruption: the tokenizer's file is missing or damaged, or holds another tokenizer.
        """
        if self._tokenizer is None:
            self._tokenizer = read_stored_tokenizer(self.path, self.manifest.tokenizer)
        return self._tokenizer

    def verify(self, depth: str = "checksums", progress: Callable[[str, float], None] | None = None) -> None:
        """Check every segment and the tokenizer.

        Args:
            depth: ``headers`` (the checks of opening), ``checksums`` (reads all bytes once), or ``full`` (also the order,
                the document tables, and the tokens in deletion segments).
            progress: called with the name of a segment and the share of that segment (0..1) that is checked.

        Raises:
            Corruption: names the file and the place.
            InvalidArgument: ``depth`` is none of these.
        """
        self.native()
        for segment in (*self._segments, *self._deletions):
            report = None if progress is None else lambda share, name=segment.entry.name: progress(name, share)
            segment.native.verify(depth, report)
        read_stored_tokenizer(self.path, self.manifest.tokenizer)
        if depth == "full":
            self._verify_deletions()
            for _ in self.origins():
                pass  # reading the documents checks their tables

    def close(self) -> None:
        """See ``Retriever.close``. Files are unmapped when the last running call ends. The tokenizer remains usable."""
        self._native = self._locator = None
        self._segments = []
        self._deletions = []

    def _live_locator(self) -> _native.Searcher:
        """A searcher that knows the deleted documents. It is created on first use, because it must read the list of these."""
        self.native()
        if self._locator is None:
            self._locator = self._make_searcher(list(self.deleted().values()))
        return self._locator

    def _make_searcher(self, deleted: Sequence[npt.NDArray[np.uint32]] = (), threads: int = 0) -> _native.Searcher:
        segments, deletions = ([each.native for each in files] for files in (self._segments, self._deletions))
        return _native.Searcher(segments, deletions, deleted, threads=threads)

    def _verify_deletions(self) -> None:
        self.deleted()
        for segment in self._deletions:
            for index, origin in enumerate(segment.origins()):
                name, document = deleted_place(origin)
                if not np.array_equal(segment.read_document(index), self.read_document(name, document)):
                    raise damaged(
                        segment.entry.name,
                        f"deletes document {document} of {name}, and its document {index} has other tokens",
                    )
