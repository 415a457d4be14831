"""The interface of a datastore that is appended to: a live store of this process, or one behind a draft service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from suffolk.datastore.context_query import Groups, Tokens
from suffolk.datastore.documents import NO_METADATA, Document, Metadata
from suffolk.datastore.retriever import Retriever
from suffolk.serving.live_store.batch import Appended
from suffolk.serving.live_store.stats import DocumentState, GroupStats, LiveDeletion, LiveStats


@runtime_checkable
class Appendable(Retriever, Protocol):
    """The methods of ``LiveStore`` that change or count documents, with its arguments and errors. Thread-safe."""

    def append(
        self,
        document: str | Tokens,
        *,
        id: str | None = None,
        metadata: Metadata = NO_METADATA,
        group: str | None = None,
        replace: bool = False,
        key: str | None = None,
    ) -> Appended: ...

    def append_batch(
        self, documents: Sequence[Document], group: Groups = None, replace: bool = False, key: str | None = None
    ) -> Appended: ...

    def get(self, id: str) -> DocumentState: ...

    def delete(self, ids: Sequence[str] = (), where: Sequence[str] = (), group: str | None = None) -> LiveDeletion: ...

    def seal(self) -> int | None: ...

    def stats(self) -> LiveStats: ...

    def group_stats(self, group: str) -> GroupStats: ...
