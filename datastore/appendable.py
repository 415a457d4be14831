"""The interface of a datastore that is appended to: a live store of this process, or one behind a draft service."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from suffolk.datastore.context_query import Groups, Tokens
from suffolk.datastore.documents import NO_METADATA, Document, Metadata
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import Retriever

MAX_KEY = 128
"""Largest number of characters of an append's key."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of an append.

    Attributes:
        sequence: number of the first appended document. The other documents have the next numbers. Numbers rise over the life of
            a store.
        documents, tokens: how many were appended.
        replaced: documents that the append removed: the group's old content, or its oldest documents if it became too large.
        durable: whether the change is on disk, and survives a power loss. The change always survives the end of the process.
    """

    sequence: int
    documents: int
    tokens: int
    replaced: int
    durable: bool


@dataclass(frozen=True, slots=True)
class LiveStats:
    """The state of a live store.

    Attributes:
        generation: number of the published generation; 0 if there is none.
        tokens, documents, bytes: contents of the memory, without removed documents, and the bytes of the segments in memory.
        published_tokens, published_documents: contents of the published generation, without deleted documents.
        segments, deletions: number of segments that a query searches, and how many of these are deletion segments in memory.
        merge_debt_tokens, merged_tokens: tokens in running and due merges in memory, and tokens that merges wrote.
        next_sequence, flushed_sequence: the number of the next document, and the number of the last document in published files.
        oldest_time: time of the oldest document in memory, in seconds since 1970; 0 if there is none.
        log_bytes, log_files, unsynced_bytes: bytes and files of the write-ahead log, and its bytes that a power loss may lose.
        torn_bytes: bytes that were cut off the log when the store was opened.
        evicted_documents, evicted_tokens: removed by size limits or by their time to live since the store was opened.
        clock_behind_seconds: how far the system's clock was behind the newest document when the store was opened.
        log_failure: why appends are refused until the store is opened again; None if they are accepted.
        background_error: why the last background eviction, publication or log rewrite failed; None if it succeeded.
    """

    generation: int
    tokens: int
    documents: int
    bytes: int
    published_tokens: int
    published_documents: int
    segments: int
    deletions: int
    merge_debt_tokens: int
    merged_tokens: int
    next_sequence: int
    flushed_sequence: int
    oldest_time: int
    log_bytes: int
    log_files: int
    unsynced_bytes: int
    torn_bytes: int
    evicted_documents: int
    evicted_tokens: int
    clock_behind_seconds: float
    log_failure: str | None
    background_error: str | None


@dataclass(frozen=True, slots=True)
class DocumentState:
    """The documents with one id.

    Attributes:
        documents, tokens: number of documents with the id, and of their tokens.
        sequence: number of the newest of these documents in memory; 0 if all are in published files.
    """

    documents: int
    tokens: int
    sequence: int


@dataclass(frozen=True, slots=True)
class GroupStats:
    """Documents and tokens of one group."""

    documents: int
    tokens: int


@dataclass(frozen=True, slots=True)
class LiveDeletion:
    """The outcome of a deletion.

    Attributes:
        documents, tokens: how many were deleted, in memory and in published files.
        generation: number of the published generation; a new one if published documents were deleted.
        unknown_ids: the given ids that no document has.
    """

    documents: int
    tokens: int
    generation: int
    unknown_ids: tuple[str, ...]


@runtime_checkable
class Appendable(Retriever, Protocol):
    """The methods that change or count documents, with the arguments and errors of ``LiveStore``. Thread-safe."""

    def append(
        self,
        document: str | Tokens,
        *,
        id: str | None = None,
        metadata: Metadata = NO_METADATA,
        group: str | None = None,
        replace: bool = False,
        key: str | None = None,
    ) -> Appended:
        """Append one document, a text or token ids. The next query of any thread finds it.

        Args:
            id: the document's source, by which ``delete`` finds it.
            metadata: field -> text, number or boolean.
            group: the group that the document joins.
            replace: remove the earlier documents of the group in the same moment.
            key: a name for this append, 1 to 128 characters. A repeat with the same key within 10 minutes changes nothing and
                returns the same outcome. So a caller that lost the outcome can repeat the append.

        Raises:
            InvalidArgument: the document is empty, larger than a limit, or has a token id out of range; nothing is changed.
            NotFound: a text is given, and the store has no tokenizer.
            ResourceExhausted: the disk is full; nothing is changed, queries go on, and appends work again when there is space.
            Unavailable: the store is closed, or its log cannot be synced.
        """
        ids: Any = self._ids(document)
        return self.append_batch([Document(id, metadata, ids)], group, replace, key)

    def append_batch(
        self, documents: Sequence[Document], group: Groups = None, replace: bool = False, key: str | None = None
    ) -> Appended: ...

    def get(self, id: str) -> DocumentState: ...

    def delete(self, ids: Sequence[str] = (), where: Sequence[str] = (), group: str | None = None) -> LiveDeletion: ...

    def flush(self) -> int | None: ...

    def stats(self) -> LiveStats: ...

    def group_stats(self, group: str) -> GroupStats: ...


def new_key() -> str:
    """A random key."""
    return secrets.token_hex(16)


def check_key(key: str) -> str:
    """Return ``key``. Raises InvalidArgument if it is empty or too long."""
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY:
        raise InvalidArgument(f"key is {key!r}; give a text of 1 to {MAX_KEY} characters")
    return key
