"""The calls of a draft service's client that change or count documents, with the methods of a local live store."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np

from suffolk.datastore.appendable import (
    Appendable,
    Appended,
    DocumentState,
    GroupStats,
    LiveDeletion,
    LiveStats,
    check_key,
    new_key,
)
from suffolk.datastore.arguments import check_flag, check_groups, check_iterable, check_text, check_texts
from suffolk.datastore.context_query import Groups
from suffolk.datastore.documents import Document, check_documents, check_group, check_source
from suffolk.datastore.errors import DeadlineExceeded, InvalidArgument, SuffolkError, Unavailable
from suffolk.datastore.query import parse_query
from suffolk.serving.net.messages.documents import pack_documents, pack_groups
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc

APPEND_DEADLINE = 10.0
"""Deadline of an append or a count, in seconds."""
FLUSH_DEADLINE = 3600.0
"""Deadline of a flush, a deletion, and a whole stream of appends, in seconds. Flushes and deletions may rewrite files."""
STREAM_TOKENS = 1 << 16
"""Tokens of one message of a stream. A longer document is a message of its own."""
Reply = TypeVar("Reply")


class RemoteWriter(Appendable):
    """Appends, deletes, flushes and counts over gRPC. Arguments, results and errors are as in ``LiveStore``.

    An append whose answer is lost is repeated once. Its key makes sure that it takes effect once. Other calls are not repeated.
    """

    _stub: draft_pb2_grpc.DraftServiceStub

    @abstractmethod
    def _ask(self, method: Callable[..., Reply], request: object, deadline: float) -> Reply:
        """The reply of ``method`` within ``deadline`` seconds. Converts gRPC's errors to Suffolk's."""

    def append_batch(
        self, documents: Sequence[Document], group: Groups = None, replace: bool = False, key: str | None = None
    ) -> Appended:
        """See ``LiveStore.append_batch``. One call may have 4 MiB, about a million tokens."""
        key = new_key() if key is None else key
        try:
            return self.append_once(documents, group, replace, key)
        except (Unavailable, DeadlineExceeded) as error:
            if error.change == "none":
                raise
            unknown = error
        try:
            return self.append_once(documents, group, replace, key)
        except (Unavailable, DeadlineExceeded):  # the first call may still have taken effect
            raise unknown from None

    def append_once(
        self, documents: Sequence[Document], group: Groups, replace: bool, key: str, deadline: float = APPEND_DEADLINE
    ) -> Appended:
        """The same as ``append_batch``, without a repetition."""
        request = self._request(documents, group, replace)
        request.key = check_key(key)
        reply = self._ask(self._stub.Append, request, deadline)
        return _appended(reply)

    def get(self, id: str) -> DocumentState:
        """See ``LiveStore.get``."""
        check_source(id)
        check_text("id", id)
        request = draft_pb2.GetRequest(datastore=self._only(), id=id)
        reply = self._ask(self._stub.Get, request, APPEND_DEADLINE)
        return DocumentState(reply.documents, reply.tokens, reply.sequence)

    def append_stream(self, documents: Iterable[Document], group: str | None = None) -> Appended:
        """Append any number of documents with one call. Each part is visible once it is appended, and stays if the call
        fails later.

        Args:
            group: the group of all documents.
        """
        check_iterable("documents", documents)
        check_groups(group)
        requests = (self._request(part, group, False) for part in _parts(documents))
        first = list(islice(requests, 1))  # the server waits only briefly for the first message
        failed: list[Exception] = []

        def sent() -> Iterator[draft_pb2.AppendRequest]:
            try:
                yield from chain(first, requests)
            except Exception as error:  # gRPC reads the documents in its own thread
                failed.append(error)
                raise

        try:
            reply = self._ask(self._stub.AppendStream, sent(), FLUSH_DEADLINE)
        except SuffolkError as error:
            raise (failed[0] if failed else error) from None
        return _appended(reply)

    def delete(
        self,
        ids: Sequence[str] = (),
        where: Sequence[str] = (),
        group: str | None = None,
        deadline: float = FLUSH_DEADLINE,
    ) -> LiveDeletion:
        """See ``LiveStore.delete``."""
        if group is None:
            parse_query(ids, where)
        else:
            check_group(group)
            check_text("group", group)
            check_texts("ids", ids)
            check_texts("where", where)
        request = draft_pb2.DeleteRequest(datastore=self._only(), ids=ids, where=where, group=group or "")
        reply = self._ask(self._stub.Delete, request, deadline)
        return LiveDeletion(reply.documents, reply.tokens, reply.generation, tuple(reply.unknown_ids))

    def flush(self) -> int | None:
        """See ``LiveStore.flush``."""
        request = draft_pb2.FlushRequest(datastore=self._only())
        reply = self._ask(self._stub.Flush, request, FLUSH_DEADLINE)
        return reply.generation if reply.HasField("generation") else None

    def stats(self) -> LiveStats:
        """See ``LiveStore.stats``."""
        return LiveStats(**self._stats(""))

    def group_stats(self, group: str) -> GroupStats:
        """See ``LiveStore.group_stats``."""
        check_group(group)
        check_text("group", group)
        return GroupStats(**self._stats(group))

    def _stats(self, group: str) -> dict[str, Any]:
        request = draft_pb2.StatsRequest(datastore=self._only(), group=group)
        reply = self._ask(self._stub.Stats, request, APPEND_DEADLINE)
        return dict(json.loads(reply.stats_json))

    def _request(self, documents: Sequence[Document], group: Groups, replace: bool) -> draft_pb2.AppendRequest:
        check_documents(documents)
        check_groups(group)
        check_flag("replace", replace)
        for document in documents:
            if document.source is not None:
                check_source(document.source)
                check_text("id", document.source)
        request = pack_documents(documents, pack_groups(group), replace)
        request.datastore = self._only()
        return request

    def _only(self) -> str:
        if len(self.names) > 1:
            raise InvalidArgument(
                f"{', '.join(self.names)} are searched as one; to append, open one of them by its own URL"
            )
        return self.names[0]


def _appended(reply: draft_pb2.AppendReply) -> Appended:
    return Appended(reply.sequence, reply.documents, reply.tokens, reply.replaced, reply.durable)


def _parts(documents: Iterable[Document]) -> Iterator[list[Document]]:
    part: list[Document] = []
    size = 0
    for document in documents:
        check_documents([document])
        tokens = np.size(document.tokens)
        if part and size + tokens > STREAM_TOKENS:
            yield part
            part, size = [], 0
        part.append(document)
        size += tokens + 16  # so many short documents are cut into parts too
    if part:
        yield part
