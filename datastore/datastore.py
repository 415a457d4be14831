"""A datastore on disk: look up, draft, verify, and say where text came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from suffolk.datastore import _native
from suffolk.datastore.deletions import Deleted, deleted_place, read_deleted
from suffolk.datastore.documents import Document, Origin
from suffolk.datastore.draft_tree import DraftTree, Source
from suffolk.datastore.errors import Corruption, InvalidArgument, NotFound, SuffolkError, Unavailable
from suffolk.datastore.host_memory import host_memory
from suffolk.datastore.manifest import SEGMENTS_NAME, Manifest, read_manifest, tokenizer_name
from suffolk.datastore.occurrence import Occurrence
from suffolk.datastore.open_segment import open_segment
from suffolk.datastore.retriever import Match, Retriever, Tokens
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer

RESIDENCIES = ("auto", "mmap", "warm", "locked")
"""How the files of a datastore are kept in memory; see ``open_datastore``."""
_SHARE = 0.25
"""Of the memory that is there, what a datastore may take without being asked."""
MAX_THREADS = 1024
MAX_OCCURRENCES = (1 << 32) - 2
"""As many as a segment may have tokens."""


def open_datastore(path: str | Path, residency: str = "mmap", threads: int = 0) -> Datastore:
    """Open the present generation of the datastore at ``path``, in time independent of its size unless it is locked.

    Args:
        residency: ``mmap``: pages come in one by one as queries touch them, and the system drops them when it needs memory; a
            thread brings in what every query begins with, 1/8 byte a token.
            ``warm``: the same, and a thread reads all files in meanwhile; for stores that fit into memory. ``auto``: that, if
            they take a quarter of the memory that is left at most, else ``mmap``. ``locked``: all files are read in first, and
            stay in memory until the datastore is closed.
        threads: that share the contexts of one batch, the calling thread included, 1..1024; 0 for as many as the machine has
            cores. They are started by the first batch of more than eight contexts; a process forked later does without.

    Raises:
        InvalidArgument: another residency or number of threads.
        NotFound: there is no datastore.
        Corruption, Unsupported: a file is damaged, missing, another one than the manifest lists, or of a newer version.
        ResourceExhausted: the system does not let this process lock so much memory.
    """
    while True:
        manifest = read_manifest(Path(path))
        try:
            return Datastore(Path(path), manifest, residency, threads)
        except Corruption:
            if read_manifest(Path(path)).generation == manifest.generation:
                raise  # else a newer generation was published meanwhile, and files of this one removed


class Datastore(Retriever):
    """One generation of a datastore, mapped into memory; implements ``suffolk.datastore.retriever.Retriever``.

    Any number of threads may use one object. It goes on serving the generation it opened when a newer one is published.
    Deleted documents are in no answer and no count.
    """

    def __init__(self, path: Path, manifest: Manifest, residency: str = "mmap", threads: int = 0) -> None:
        if residency not in RESIDENCIES:
            raise InvalidArgument(f"residency is {residency!r}; it must be one of {', '.join(RESIDENCIES)}")
        if not 0 <= threads <= MAX_THREADS:
            raise InvalidArgument(f"threads is {threads}; it must be 0 (every core) to {MAX_THREADS}")
        if residency == "auto":
            size = sum(entry.bytes for entry in manifest.files())
            residency = "warm" if size <= _SHARE * host_memory() else "mmap"
        self.path = path
        self.manifest = manifest
        self._segments, self._deletions = (
            [open_segment(path / SEGMENTS_NAME, entry, manifest) for entry in entries]
            for entries in (manifest.segments, manifest.deletions)
        )
        self._tokenizer: Tokenizer | None = None
        files = [segment.native for segment in self._segments + self._deletions]
        if residency == "locked":
            for file in files:
                file.lock()
        else:
            _native.warm(files, whole=residency == "warm")
        self._native: _native.Searcher | None = self._make_searcher(threads=threads)
        self._locator = None if self._deletions else self._native

    @property
    def name(self) -> str:
        """See ``Retriever.name``."""
        return self.path.name

    @property
    def vocab_size(self) -> int:
        """See ``Retriever.vocab_size``."""
        return self.manifest.vocab_size

    def lookup_batch(self, contexts: Sequence[Tokens], max_match: int = 16, min_match: int = 1) -> list[Match]:
        """See ``Retriever.lookup_batch``."""
        return [Match(*answer) for answer in self._searcher().lookup(contexts, max_match, min_match)]

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
        trees = self._searcher().draft(contexts, max_match, min_match, max_depth, budgets, Source.DATASTORE)
        return [DraftTree(*tree) for tree in trees]

    def clock(
        self,
        contexts: Sequence[Tokens],
        max_match: int = 16,
        min_match: int = 1,
        max_depth: int = 10,
        max_nodes: int = 64,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Seconds (float64[contexts]) that the core takes for each context's lookup, and for drafting from what that found."""
        return self._searcher().clock(contexts, max_match, min_match, max_depth, max_nodes)

    def occurrences(self, ids: Tokens, limit: int = 10, context: int = 16) -> list[Occurrence]:
        """Up to ``limit`` places where ``ids`` stands, each with ``context`` tokens behind it, spread evenly over all.

        Raises:
            InvalidArgument: no ids, more than the order depth, an id outside the vocabulary, or a number below 0.
        """
        if not 1 <= len(ids) <= self._searcher().order_depth:
            raise InvalidArgument(f"a pattern of {len(ids)} tokens; it must have 1 to {self._searcher().order_depth}")
        for name, value in (("limit", limit), ("context", context)):
            if not 0 <= value <= MAX_OCCURRENCES:
                raise InvalidArgument(f"{name} is {value}; it must be 0 to {MAX_OCCURRENCES}")
        found = self._live_locator().occurrences(ids, limit)
        return [self._segments[number].occurrence(position, len(ids) + context) for number, position in found]

    def documents(self) -> Iterator[Document]:
        """Every document in order.

        Raises:
            Corruption: a document table is damaged.
        """
        for name, index, (source, metadata) in self.origins():
            yield Document(source, metadata, self.read_document(name, index))

    def origins(self) -> Iterator[tuple[str, int, Origin]]:
        """Segment, index and origin of every document in order: what ``documents`` gives without the tokens.

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
        """The tokens (uint32[n]) of document ``index`` of the live segment of that name, deleted or not.

        Raises:
            NotFound: no live segment has that name.
            InvalidArgument: it has no such document.
        """
        self._searcher()
        for own in self._segments:
            if own.entry.name == segment:
                return own.read_document(index)
        raise NotFound(f"{self.path} has no live segment {segment!r}; suffolk info lists them")

    def deleted(self) -> Deleted:
        """The deleted documents of each live segment, by its name.

        Raises:
            Corruption: the table of a deletion segment is damaged, or names what there is not.
        """
        return read_deleted(self.manifest.segments, self.deletion_origins())

    def deletion_origins(self) -> Iterator[Origin]:
        """What the deletion segments say of their documents: see ``suffolk.datastore.deletions.deleted_place``.

        Raises:
            Corruption: a document table is damaged.
        """
        self._searcher()
        for segment in self._deletions:
            yield from segment.origins()

    def info(self) -> dict[str, Any]:
        """Facts: path, generation, tokens, documents, bytes, vocab_size, order_depth, tokenizer, created, settings, segments.

        What is deleted is in ``deleted_tokens`` and ``deleted_documents``, not in ``tokens`` and ``documents``.
        """
        self._searcher()
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
        """Bytes of the segment files that are in memory, whoever brought them there; costs a look at every page's state.

        None where the system does not tell: it does so only to the files' owner and to those who may write to them.
        """
        self._searcher()
        sizes = [segment.native.resident_bytes() for segment in (*self._segments, *self._deletions)]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def tokenizer_path(self) -> Path | None:
        """The copy of the tokenizer that this generation was built with, if there was one and it is still there."""
        if self.manifest.tokenizer is None:
            return None
        path = self.path / tokenizer_name(self.manifest.tokenizer)
        return path if path.is_file() else None

    def tokenizer(self) -> Tokenizer | None:
        """See ``Retriever.tokenizer``.

        Raises:
            Corruption: its file is missing, damaged, or another tokenizer's.
        """
        if self._tokenizer is None:
            self._tokenizer = self._read_tokenizer()
        return self._tokenizer

    def verify(self, depth: str = "checksums", progress: Callable[[str, float], None] | None = None) -> None:
        """Check every segment: ``headers`` (what opening does), ``checksums`` (reads all bytes once), ``full`` (the order too,
        that document tables can be read, and that deletion segments hold the tokens of the documents that they name).
        At any depth, that the tokenizer is the one that the datastore was built with.

        Raises:
            Corruption: names the file and the place.
        """
        self._searcher()
        for segment in (*self._segments, *self._deletions):
            report = None if progress is None else lambda share, name=segment.entry.name: progress(name, share)
            segment.native.verify(depth, report)
        self._read_tokenizer()
        if depth == "full":
            self._verify_deletions()
            for _ in self.origins():
                pass  # reading is the check

    def close(self) -> None:
        """Let go of the files; they are unmapped when no call uses them any more. Later calls raise Unavailable, but for those
        of the tokenizer, which is a file of its own."""
        self._native = self._locator = None
        self._segments = []
        self._deletions = []

    def __enter__(self) -> Datastore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_tokenizer(self) -> Tokenizer | None:
        if self.manifest.tokenizer is None:
            return None
        path = self.path / tokenizer_name(self.manifest.tokenizer)
        problem = "is missing"
        if path.is_file():
            try:
                tokenizer = load_tokenizer(path)
                if fingerprint(tokenizer) == self.manifest.tokenizer:
                    return tokenizer
                problem = "is not the one that the datastore was built with"
            except SuffolkError:
                problem = "is damaged"
        raise Corruption(f"{path} {problem}; copy that tokenizer's tokenizer.json there")

    def _searcher(self) -> _native.Searcher:
        if self._native is None:
            raise Unavailable(f"the datastore {self.path} is closed; open it again")
        return self._native

    def _live_locator(self) -> _native.Searcher:
        """A searcher that knows which documents are deleted, made when it is first needed: that takes reading their list."""
        self._searcher()
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
                    raise Corruption(
                        f"{segment.entry.name}: document {index} has not the tokens of document {document} of {name}, which it "
                        "deletes; restore the datastore from a copy, or build it again"
                    )
