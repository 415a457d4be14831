"""The interface of retrievers that answer over a network."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Protocol, runtime_checkable

from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.retriever import Retriever


@runtime_checkable
class AsyncRetriever(Retriever, Protocol):
    """A retriever with asynchronous calls: a client of one or several draft services.

    Attributes:
        healthy: whether the last finished call succeeded.
    """

    @property
    def healthy(self) -> bool: ...

    def draft_batch_future(self, query: ContextQuery) -> Future[list[DraftTree]]:
        """As ``find_drafts``, but without waiting. The future ends in bounded time, with the answer or an error."""
        ...
