"""A datastore on disk: look up, draft, verify, and say where text came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from datastore import _native
from datastore.documents import DocumentTable
from datastore.draft_tree import DraftTree, Source
from datastore.errors import Corruption, InvalidArgument, NotFound, Unavailable
from datastore.manifest import SEGMENTS_NAME, TOKENIZER_NAME, Manifest, read_manifest
from datastore.retriever import Match, Tokens
from datastore.segment import SegmentEntry
from datastore.tree_arrays import tree_from_arrays


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One place where a pattern stands.

    Attributes:
        segment: name of the segment.
        document: index of the document in the segment.
        offset: token offset of the pattern in the document.
        source: where the document came from; None if that was not recorded.
        tokens: uint32[m], the pattern and what follows it, to the document's end at most.
    """

    segment: str
    document: int
    offset: int
    source: str | None
    tokens: npt.NDArray[np.uint32]


RESIDENCIES = ("mmap", "warm", "locked")
"""How the files of a datastore are kept in memory; see ``open_datastore``."""


MAX_THREADS = 1024


def open_datastore(path: str | Path, residency: str = "mmap", threads: int = 0) -> Datastore:
    """Open the present generation of the datastore at ``path``, in time independent of its size unless it is locked.

    Args:
        residency: ``mmap``: pages come in one by one as queries touch them, and the system drops them when it needs memory.
            ``warm``: the same, and a thread reads all files in meanwhile; for stores that fit into memory. ``locked``: all
            files are read in first, and stay in memory until the datastore is closed.
        threads: that share the contexts of one batch, the calling thread included, 1..1024; 0 for as many as the machine has
            cores. They are started by the first batch of more than eight contexts; a process forked later does without.

    Raises:
        InvalidArgument: another residency or number of threads.
        NotFound: there is no datastore.
        Corruption, Unsupported: a file is damaged, missing, another one than the manifest lists, or of a newer version.
        ResourceExhausted: the system does not let this process lock so much memory.
    """
    return Datastore(Path(path), residency, threads)


class Datastore:
    """One generation of a datastore, mapped into memory; implements ``datastore.retriever.Retriever``.

    Any number of threads may use one object. It goes on serving the generation it opened when a newer one is published.
    """

    def __init__(self, path: Path, residency: str = "mmap", threads: int = 0) -> None:
        if residency not in RESIDENCIES:
            raise InvalidArgument(f"residency is {residency!r}; it must be one of {', '.join(RESIDENCIES)}")
        if not 0 <= threads <= MAX_THREADS:
            raise InvalidArgument(f"threads is {threads}; it must be 0 (every core) to {MAX_THREADS}")
        self.path = path
        self.manifest: Manifest = read_manifest(path)
        self._segments = [_open_segment(path / SEGMENTS_NAME, entry, self.manifest) for entry in self.manifest.segments]
        if residency == "warm":
            _native.warm(self._segments)
        elif residency == "locked":
            for segment in self._segments:
                segment.lock()
        self._native: _native.Searcher | None = _native.Searcher(self._segments, threads)

    def lookup(self, ids: Tokens, max_match: int = 16, min_match: int = 1) -> Match:
        """See ``Retriever.lookup``."""
        return self.lookup_batch([ids], max_match, min_match)[0]

    def lookup_batch(self, contexts: Sequence[Tokens], max_match: int = 16, min_match: int = 1) -> list[Match]:
        """See ``Retriever.lookup_batch``."""
        return [Match(*answer) for answer in self._searcher().lookup(contexts, max_match, min_match)]

    def draft(
        self, ids: Tokens, max_match: int = 16, min_match: int = 1, max_depth: int = 10, max_nodes: int = 64
    ) -> DraftTree:
        """See ``Retriever.draft``."""
        return self.draft_batch([ids], max_match, min_match, max_depth, max_nodes)[0]

    def draft_batch(
        self,
        contexts: Sequence[Tokens],
        max_match: int = 16,
        min_match: int = 1,
        max_depth: int = 10,
        max_nodes: int | Sequence[int] = 64,
    ) -> list[DraftTree]:
        """See ``Retriever.draft_batch``."""
        budgets = [max_nodes] * len(contexts) if isinstance(max_nodes, int) else list(max_nodes)
        trees = self._searcher().draft(contexts, max_match, min_match, max_depth, budgets)
        return [tree_from_arrays(*tree, Source.DATASTORE) for tree in trees]

    def occurrences(self, ids: Tokens, limit: int = 10, context: int = 16) -> list[Occurrence]:
        """Up to ``limit`` places where ``ids`` stands, each with ``context`` tokens behind it, spread evenly over all.

        Raises:
            InvalidArgument: no ids, more than the order depth, or an id outside the vocabulary.
        """
        if not 1 <= len(ids) <= self._searcher().order_depth:
            raise InvalidArgument(f"a pattern of {len(ids)} tokens; it must have 1 to {self._searcher().order_depth}")
        found = self._searcher().occurrences(ids, limit)
        return [self._occurrence(number, position, len(ids) + context) for number, position in found]

    def documents(self) -> Iterator[tuple[str | None, npt.NDArray[np.uint32]]]:
        """Every document in order: its source, and its tokens (uint32[n])."""
        for segment, entry in zip(self._segments, self.manifest.segments, strict=True):
            table = DocumentTable(segment.document_table(), entry.name)
            for document in range(entry.documents):
                begin, end = segment.document_range(document)
                yield table.source(document), segment.read_tokens(begin, end - begin)

    def info(self) -> dict[str, Any]:
        """Facts: path, generation, tokens, documents, bytes, vocab_size, order_depth, tokenizer, created, settings, segments."""
        manifest = self.manifest
        tokens = sum(entry.tokens for entry in manifest.segments)
        size = sum(entry.bytes for entry in manifest.segments)
        facts = [segment.facts() for segment in self._segments]
        return {
            "path": str(self.path),
            "generation": manifest.generation,
            "tokens": tokens,
            "documents": sum(entry.documents for entry in manifest.segments),
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
        """Bytes of the segment files that are in memory, whoever brought them there; costs a look at every page's state.

        None where the system does not tell: it does so only to the files' owner and to those who may write to them.
        """
        sizes = [segment.resident_bytes() for segment in self._segments]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def tokenizer_path(self) -> Path | None:
        """The copy of the tokenizer that the datastore was built with, if there was one."""
        path = self.path / TOKENIZER_NAME
        return path if path.is_file() else None

    def verify(self, depth: str = "checksums", progress: Callable[[str, float], None] | None = None) -> None:
        """Check every segment: ``headers`` (what opening does), ``checksums`` (reads all bytes once), ``full`` (the order too).

        Raises:
            Corruption: names the file and the place.
        """
        for segment, entry in zip(self._segments, self.manifest.segments, strict=True):
            report = None if progress is None else lambda share, name=entry.name: progress(name, share)
            segment.verify(depth, report)

    def close(self) -> None:
        """Let go of the files; they are unmapped when no call uses them any more. Later calls raise Unavailable."""
        self._native = None
        self._segments = []

    def __enter__(self) -> Datastore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _searcher(self) -> _native.Searcher:
        if self._native is None:
            raise Unavailable(f"the datastore {self.path} is closed; open it again")
        return self._native

    def _occurrence(self, number: int, position: int, limit: int) -> Occurrence:
        segment, entry = self._segments[number], self.manifest.segments[number]
        document = segment.document_at(position)
        if document >= entry.documents:
            raise Corruption(f"{entry.name}: token {position} lies in no document; run 'suffolk verify {self.path}'")
        begin, end = segment.document_range(document)
        source = DocumentTable(segment.document_table(), entry.name).source(document)
        return Occurrence(
            entry.name, document, position - begin, source, segment.read_tokens(position, min(limit, end - position))
        )


def _open_segment(folder: Path, entry: SegmentEntry, manifest: Manifest) -> _native.Segment:
    path = folder / entry.name
    try:
        segment = _native.Segment(str(path))
    except NotFound as error:
        raise Corruption(f"{path} is missing; restore it from a copy, or build the datastore again") from error
    facts = segment.facts()
    tokenizer = bytes(32) if manifest.tokenizer is None else bytes.fromhex(manifest.tokenizer)
    checksum = f"{facts['checksum']:08x}"
    found = (facts["tokens"], facts["documents"], facts["bytes"], checksum, facts["vocab_size"], facts["fingerprint"])
    listed = (entry.tokens, entry.documents, entry.bytes, entry.checksum, manifest.vocab_size, tokenizer)
    if found != listed or facts["order_depth"] < manifest.order_depth:
        raise Corruption(
            f"{path} is not the segment that the manifest lists: its sizes, checksum, vocabulary or tokenizer differ; "
            "restore it from a copy, or build the datastore again"
        )
    return segment
