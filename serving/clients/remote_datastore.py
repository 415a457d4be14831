"""A client of the draft service with the methods of a local datastore."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import grpc
import numpy as np
import numpy.typing as npt
from google.protobuf.message import Message
from tokenizers import Tokenizer

from suffolk.datastore import limits
from suffolk.datastore.arguments import check_deadline
from suffolk.datastore.context_query import ContextQuery, OccurrenceQuery, Tokens
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Internal, InvalidArgument, NotFound, SuffolkError, Unavailable
from suffolk.datastore.merged import merged_info
from suffolk.datastore.retriever import Match
from suffolk.datastore.tree_paths import Paths
from suffolk.serving.clients.breaker import CircuitBreaker
from suffolk.serving.clients.remote_writer import RemoteWriter
from suffolk.serving.net import tracing
from suffolk.serving.net.call_errors import call_error
from suffolk.serving.net.channel import open_channel, parse_server_info
from suffolk.serving.net.messages import columns
from suffolk.serving.net.messages.choices import DatastoreChoice, pack_choices, parse_choices
from suffolk.serving.net.messages.documents import pack_groups
from suffolk.serving.net.messages.replies import unpack_occurrences, unpack_tokenizer
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.net.tokens import pack_tokens, to_tokens
from suffolk.serving.net.url import ServiceUrl, describe_url, parse_url

DEFAULT_DEADLINE = 0.02
"""Deadline of a draft or lookup, in seconds: about one decoding step of a small model. A draft may take
``ContextQuery.patience`` if this is longer."""
PREFETCH_DEADLINE = 0.25
"""Least deadline of ``draft_batch_future``, in seconds. Decoding runs at the same time and may use all cores."""
MAX_DEADLINE = 3600.0
INFO_DEADLINE = 5.0
"""Deadline of ``info`` and ``occurrences``, in seconds. It includes the first connection."""
TOKENIZER_DEADLINE = 30.0
"""Deadline of ``tokenizer``, in seconds. The call transfers several MiB."""
_KEEPALIVE_TIMEOUT = 1.0
"""Seconds without an acknowledgement after which the connection is replaced."""
Reply = TypeVar("Reply")
Result = TypeVar("Result")
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class _Call(Generic[Answer]):
    """A call to send, and the parser of its reply. The reply holds one answer for each of ``queries``."""

    name: str
    queries: int
    method: Any
    request: Message
    parse: Callable[[Any], list[Answer]]


def draft_deadline(query: ContextQuery, deadline: float, is_patient: bool) -> float:
    """Seconds that a draft may take. ``is_patient``: whether ``deadline`` is the default, so that a query may allow more."""
    return max(deadline, query.patience) if is_patient else deadline


def connect(url: str, deadline: float | None = None) -> RemoteDatastore:
    """Open the datastore at ``url`` (see serving/net/url.py) and read its info.

    Args:
        deadline: seconds that a draft or lookup may take; None uses the URL's deadline, else DEFAULT_DEADLINE.

    Raises:
        InvalidArgument: the URL is malformed, or has no NAME although the server has several datastores.
        NotFound: the server has no datastore of that name, or a TLS file is missing.
        PermissionDenied: a TLS file is not readable.
        Unavailable, DeadlineExceeded: no server answers.
    """
    store = RemoteDatastore(url, parse_url(url), deadline, CircuitBreaker())
    try:
        store.info()
    except SuffolkError:
        store.close()
        raise
    return store


class RemoteDatastore(RemoteWriter):
    """A ``Retriever`` behind a draft service; every batch is one call. Thread-safe. ``connect`` makes it.

    It searches one datastore, or several datastores of one server as one (``MergedDatastore``).

    Failed and late calls raise DeadlineExceeded, Unavailable, ResourceExhausted and so on. While the circuit breaker is open,
    calls raise Unavailable and nothing is sent. Replies are validated: a malformed reply raises Internal.

    Attributes:
        vocab_size, has_groups: see ``Retriever``. Updated by ``info``.
        hides_text: whether the server hides rare text (``--min-count``). Updated by ``info``.
    """

    vocab_size = 0
    has_groups = hides_text = False

    def __init__(self, url: str, parts: ServiceUrl, deadline: float | None, breaker: CircuitBreaker) -> None:
        self.url = url
        given = parts.deadline if deadline is None else deadline
        self.deadline = DEFAULT_DEADLINE if given is None else given
        self._is_patient = given is None
        check_deadline(self.deadline, MAX_DEADLINE)
        self.breaker = breaker
        self._choices = parse_choices(parts.name)
        self._fingerprint: str | None = None
        self._tokenizer_name = ""
        self._tokenizer: Tokenizer | None = None
        self._closed = False
        self._channel = open_channel(parts, limits.MAX_REQUEST_BYTES, limits.MAX_REPLY_BYTES, _KEEPALIVE_TIMEOUT)
        self._stub = draft_pb2_grpc.DraftServiceStub(self._channel)

    @property
    def name(self) -> str:
        """See ``Retriever.name``. Several names are joined by commas."""
        return ",".join(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(choice.name for choice in self._choices)

    @property
    def healthy(self) -> bool:
        """Whether the last finished call succeeded. True before the first call."""
        return self.breaker.healthy

    def find_matches(self, query: ContextQuery) -> list[Match]:
        return self._call(self._lookup(query), self.deadline)

    def find_drafts(self, query: ContextQuery) -> list[DraftTree]:
        return self._call(self._draft(query), draft_deadline(query, self.deadline, self._is_patient))

    def draft_batch_future(self, query: ContextQuery) -> Future[list[DraftTree]]:
        """The same as ``find_drafts``, but returns a future. The deadline is at least PREFETCH_DEADLINE.

        InvalidArgument, and Unavailable while the breaker is open, are raised immediately. The future raises all other
        errors. Cancelling the future cancels the call, and leaves the breaker unchanged.
        """
        return self.start_drafts(query, max(draft_deadline(query, self.deadline, self._is_patient), PREFETCH_DEADLINE))

    def start_drafts(self, query: ContextQuery, deadline: float) -> Future[list[DraftTree]]:
        """The same as ``draft_batch_future``, with another deadline."""
        return self._start(self._draft(query), deadline)

    def start_matches(self, query: ContextQuery, deadline: float) -> Future[list[Match]]:
        """The same as ``start_drafts``, for a lookup."""
        return self._start(self._lookup(query), deadline)

    def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """See ``Retriever.occurrences``. Ignores the breaker. ``check_occurrences`` has the limits of the query's numbers."""
        limits.check_occurrences(query.limit, query.context, query.before)
        ids = to_tokens(query.pattern, "pattern")
        request = draft_pb2.OccurrencesRequest(
            datastores=pack_choices(self._choices),
            pattern=pack_tokens(ids),
            limit=query.limit,
            context=query.context,
            before=query.before,
            group=query.group or "",
            scope=query.scope or "",
        )
        reply = self._ask(self._stub.Occurrences, request, INFO_DEADLINE)
        return self._parse(
            lambda sent: unpack_occurrences(sent, ids.tolist(), query.limit, self.names, self.vocab_size), reply
        )

    def info(self, deadline: float = INFO_DEADLINE) -> dict[str, Any]:
        """Fetch the datastore's info from the server, and add ``url``.

        Updates ``names`` and ``vocab_size``. Ignores the breaker. Several datastores give ``merged_info``.
        """
        request = draft_pb2.GetInfoRequest(datastores=self.names)
        reply = self._ask(self._stub.GetInfo, request, deadline)
        found = {each.name: each for each in reply.datastores}
        if not found:
            raise NotFound(f"{self.url}: the server has no datastore")
        if len(found) > max(1, len(self._choices)):
            raise InvalidArgument(
                f"{self.url}: the server has several datastores; put one of {', '.join(found)} at the end of the URL"
            )
        weights = [choice.weight for choice in self._choices] or [1]
        self._choices = tuple(map(DatastoreChoice, found, weights))  # with the names that the server uses
        infos = {name: parse_server_info(self.url, "draft service", each.info_json) for name, each in found.items()}
        info = merged_info(infos) if len(infos) > 1 else next(iter(infos.values()))
        self.vocab_size = reply.datastores[0].vocab_size
        self.has_groups = sum("live" in each for each in infos.values()) == 1
        self.hides_text = any("min_count" in each for each in infos.values())
        if info.get("tokenizer") != self._fingerprint:
            self._fingerprint, self._tokenizer = info.get("tokenizer"), None
            self._tokenizer_name = next((name for name in infos if infos[name].get("tokenizer")), "")
        return {**info, "url": self.url}

    def select(self, names: Collection[str]) -> RemoteDatastore:
        """See ``Retriever.select``. The returned client shares this connection."""
        chosen = tuple(choice for choice in self._choices if choice.name in names)
        if not chosen:
            raise InvalidArgument(f"{self.url}: none of its datastores is in {', '.join(names) or 'an empty list'}")
        found = copy(self)
        found._choices = chosen
        return found

    def tokenizer(self) -> Tokenizer | None:
        """See ``Retriever.tokenizer``. The first use fetches the tokenizer and checks its fingerprint against ``info``.

        Raises:
            Internal: the server sent another tokenizer, or a malformed one.
            ResourceExhausted: the tokenizer is larger than a reply may be.
        """
        expected = self._fingerprint
        if self._tokenizer is None and expected is not None:
            request = draft_pb2.GetTokenizerRequest(datastore=self._tokenizer_name)
            reply = self._ask(self._stub.GetTokenizer, request, TOKENIZER_DEADLINE)
            self._tokenizer = self._parse(lambda sent: unpack_tokenizer(sent.tokenizer_zstd, expected), reply)
        return self._tokenizer

    def close(self) -> None:
        """Close the connection; later calls raise Unavailable."""
        self._closed = True
        self._channel.close()

    def _lookup(self, query: ContextQuery) -> _Call[Match]:
        limits.check_numbers(query)
        size, max_match = len(query.contexts), query.max_match
        request = draft_pb2.LookupRequest(**self._fields(query))
        return _Call(
            "Lookup", size, self._stub.Lookup, request, lambda reply: columns.unpack_matches(reply, size, max_match)
        )

    def _draft(self, query: ContextQuery) -> _Call[DraftTree]:
        limits.check_numbers(query)
        sizes = list(map(int, query.budgets))
        request = draft_pb2.DraftRequest(
            **self._fields(query),
            max_depth=query.max_depth,
            max_nodes=columns.pack_sizes(sizes),
            least_counts=columns.pack_counts(query.least_counts),
        )
        return _Call(
            "Draft",
            len(sizes),
            self._stub.Draft,
            request,
            lambda reply: columns.unpack_trees(reply, sizes, query.max_match, self.vocab_size),
        )

    def start_counts(
        self, contexts: Sequence[Tokens], trees: Sequence[Paths], deadline: float
    ) -> Future[list[npt.NDArray[np.uint64]]]:
        """A future of counts: for each context and each node of its tree, the occurrences that continue with the node's
        path."""
        longest = max(map(len, contexts), default=1)
        request = draft_pb2.CountRequest(
            datastores=pack_choices(self._choices),
            **columns.pack_contexts(contexts, longest),
            **columns.pack_paths(trees),
        )
        parse = partial(columns.unpack_counts, trees=trees)
        return self._start(_Call("Count", len(contexts), self._stub.Count, request, parse), deadline)

    def _call(self, call: _Call[Answer], deadline: float) -> list[Answer]:
        """The answer of ``call``."""
        self._check_breaker()
        with tracing.start_client_span(call.name, call.queries) as span:
            return self._finish(
                lambda: call.method(call.request, timeout=deadline, metadata=span.metadata), call.parse, deadline
            )

    def _start(self, call: _Call[Answer], deadline: float) -> Future[list[Answer]]:
        """A future of the answer of ``call``."""
        self._check_breaker()
        future: Future[list[Answer]] = Future()
        span = tracing.start_client_span(call.name, call.queries)
        sent = self._invoke(
            lambda: call.method.future(call.request, timeout=deadline, metadata=span.metadata), deadline
        )

        def finish(sent: grpc.Future[Any]) -> None:
            if not future.set_running_or_notify_cancel():
                span.end()
                return
            try:
                answer = self._finish(sent.result, call.parse, deadline)
                span.end()
                future.set_result(answer)
            except Exception as error:  # noqa: BLE001 - the reader of the future gets it
                span.end(error)
                future.set_exception(error)

        future.add_done_callback(lambda done: sent.cancel() if done.cancelled() else None)
        sent.add_done_callback(finish)
        return future

    def _fields(self, query: ContextQuery) -> dict[str, Any]:
        """The fields of a lookup. ``groups`` is unset without a group."""
        by_store = query.group if isinstance(query.group, Mapping) else {}
        groups = [] if by_store else pack_groups(query.groups)
        return {
            "datastores": pack_choices(self._choices, by_store),
            "max_match": query.max_match,
            "min_match": query.min_match,
            **columns.pack_contexts(query.contexts, query.max_match),
            "groups": groups if any(groups) else (),
            "scope": query.scope or "",
        }

    def _check_breaker(self) -> None:
        if not self.breaker.allows_call():
            raise Unavailable(
                f"{self.url}: circuit breaker open: the last calls failed, and the next is sent within a second; "
                "is the draft service running?"
            )

    def _finish(self, call: Callable[[], Reply], parse: Callable[[Reply], list[Any]], deadline: float) -> list[Any]:
        """The parsed reply of ``call``.

        Reports the outcome to the breaker. Invalid arguments do not count as failures.
        """
        try:
            result = self._parse(parse, self._invoke(call, deadline))
        except InvalidArgument:
            self.breaker.record_success()
            raise
        except SuffolkError:
            self.breaker.record_failure()
            raise
        self.breaker.record_success()
        return result

    def _parse(self, parse: Callable[[Reply], Result], reply: Reply) -> Result:
        try:
            return parse(reply)
        except InvalidArgument as error:
            raise Internal(f"{self.url}: the draft service sent a malformed reply: {error}") from None

    def _ask(self, method: Callable[..., Reply], request: object, deadline: float) -> Reply:
        return self._invoke(lambda: method(request, timeout=deadline), deadline)

    def _invoke(self, call: Callable[[], Reply], deadline: float) -> Reply:
        """The result of ``call``. Converts gRPC's errors to Suffolk's."""
        if self._closed:
            raise Unavailable(f"{self.url}: this datastore was closed; open it again")
        try:
            return call()
        except grpc.RpcError as error:
            late = f"no answer within {round(deadline * 1000, 1):g} ms, the deadline"
            if deadline == self.deadline:
                late += "; if that is too short, add ?deadline_ms= to the URL"
            raise call_error(error, describe_url(self.url), "draft service", late) from None
        except (grpc.FutureCancelledError, ValueError) as error:  # another thread closes the channel
            raise Unavailable(f"{self.url}: {error}; open it again") from None
