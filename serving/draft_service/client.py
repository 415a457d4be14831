"""A datastore behind a draft service, with the methods of a local one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import grpc
from tokenizers import Tokenizer

from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import Internal, InvalidArgument, NotFound, SuffolkError, Unavailable
from suffolk.datastore.retriever import (
    DEFAULT_MAX_DEPTH,
    DEFAULT_MAX_MATCH,
    DEFAULT_MAX_NODES,
    DEFAULT_MIN_MATCH,
    Match,
    Retriever,
    Tokens,
)
from suffolk.serving.draft_service import limits, wire
from suffolk.serving.draft_service.breaker import CircuitBreaker
from suffolk.serving.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.transport.call_errors import call_error
from suffolk.serving.transport.channel import open_channel
from suffolk.serving.transport.limits import check_deadline
from suffolk.serving.transport.server_info import read_facts
from suffolk.serving.transport.tokens import pack_tokens, to_tokens
from suffolk.serving.transport.url import ServiceUrl, describe_url, parse_url

DEFAULT_DEADLINE = 0.02
"""Seconds for a draft or lookup: about one decoding step of a small model; later, a plain step has won."""
LATER_DEADLINE = 0.25
"""Seconds, at least, for a call that nobody waits for: beside a pass that takes all cores an answer takes its time."""
MAX_DEADLINE = 3600.0
INFO_DEADLINE = 5.0
"""Seconds for facts and for the first contact, which no decoding step waits for."""
TOKENIZER_DEADLINE = 30.0
"""Seconds for the tokenizer, of several MiB, which the first text needs."""
_SILENCE = 1.0
"""Seconds without a sign of life on the connection, while one is due, before another is opened."""
Request = TypeVar("Request")
Reply = TypeVar("Reply")
Answer = TypeVar("Answer")


def connect(url: str, deadline: float | None = None) -> RemoteDatastore:
    """The datastore at ``url`` (see url.py), after asking its server for the facts.

    ``deadline`` is how many seconds a draft or lookup may take; None: what the URL says, else DEFAULT_DEADLINE.

    Raises:
        InvalidArgument: not such a URL, or it names no datastore and the server has several.
        NotFound: the server has no datastore of that name, or a TLS file is missing. PermissionDenied: it may not be read.
        Unavailable, DeadlineExceeded: nobody answers.
    """
    parts = parse_url(url)
    if deadline is None:
        deadline = parts.deadline or DEFAULT_DEADLINE
    check_deadline(deadline, MAX_DEADLINE)
    store = RemoteDatastore(url, parts, deadline, CircuitBreaker())
    try:
        store.refresh()
    except SuffolkError:
        store.close()
        raise
    return store


class RemoteDatastore(Retriever):
    """A ``Retriever`` whose every batch is one call. Thread-safe. Made by ``connect``.

    Strict: a call that fails or is late raises (DeadlineExceeded, Unavailable, ResourceExhausted, ...). While the
    circuit breaker is open all raise Unavailable at once and nothing is sent. To a ``DatastoreDrafter`` each is a missed draft.
    A reply is checked before it is believed: a server that lies gives Internal, never a tree that is none.
    """

    def __init__(self, url: str, parts: ServiceUrl, deadline: float, breaker: CircuitBreaker) -> None:
        self.url = url
        self.deadline = deadline
        self.breaker = breaker
        self._name = parts.name
        self._vocab_size = 0
        self._fingerprint: str | None = None
        self._tokenizer: Tokenizer | None = None
        self._closed = False
        self._channel = open_channel(parts, limits.MAX_REQUEST_BYTES, limits.MAX_REPLY_BYTES, _SILENCE)
        self._stub = draft_pb2_grpc.DraftServiceStub(self._channel)

    @property
    def name(self) -> str:
        """See ``Retriever.name``."""
        return self._name

    @property
    def vocab_size(self) -> int:
        """See ``Retriever.vocab_size``; as of the last ``refresh``."""
        return self._vocab_size

    def lookup_batch(
        self, contexts: Sequence[Tokens], max_match: int = DEFAULT_MAX_MATCH, min_match: int = DEFAULT_MIN_MATCH
    ) -> list[Match]:
        limits.check_match(max_match, min_match)
        request = draft_pb2.LookupRequest(
            datastore=self._name, max_match=max_match, min_match=min_match, contexts=_tails(contexts, max_match)
        )
        return self._guarded(self._stub.Lookup, request, lambda reply: _matches(reply, len(contexts), max_match))

    def draft_batch(
        self,
        contexts: Sequence[Tokens],
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        max_depth: int = DEFAULT_MAX_DEPTH,
        max_nodes: int | Sequence[int] = DEFAULT_MAX_NODES,
    ) -> list[DraftTree]:
        request, read = self._drafting(contexts, max_match, min_match, max_depth, max_nodes)
        return self._guarded(self._stub.Draft, request, read)

    @property
    def answering(self) -> bool:
        """Whether the last call that ended was answered (or there was none)."""
        return not self.breaker.failing

    def draft_batch_later(
        self,
        contexts: Sequence[Tokens],
        max_match: int = DEFAULT_MAX_MATCH,
        min_match: int = DEFAULT_MIN_MATCH,
        max_depth: int = DEFAULT_MAX_DEPTH,
        max_nodes: int | Sequence[int] = DEFAULT_MAX_NODES,
    ) -> Future[list[DraftTree]]:
        """As ``draft_batch``, without waiting: an answer or an error comes within the deadline, or ``LATER_DEADLINE`` if that is
        longer, and the breaker hears of it.

        Raises at once InvalidArgument, and Unavailable while the breaker is open.
        """
        request, read = self._drafting(contexts, max_match, min_match, max_depth, max_nodes)
        self._require_admission()
        answer: Future[list[DraftTree]] = Future()
        deadline = max(self.deadline, LATER_DEADLINE)
        call = self._translated(lambda: self._stub.Draft.future(request, timeout=deadline), deadline)

        def arrive(call: grpc.Future[draft_pb2.DraftReply]) -> None:
            try:
                answer.set_result(self._judged(lambda: self._read(read, self._translated(call.result, deadline))))
            except Exception as error:  # noqa: BLE001 - whoever reads the answer gets it
                answer.set_exception(error)

        call.add_done_callback(arrive)
        return answer

    def info(self) -> dict[str, Any]:
        """The datastore's facts, asked anew, with the ``url`` where it was found. Not held back by the breaker."""
        return self.refresh()

    def refresh(self) -> dict[str, Any]:
        """Ask the server for the facts and take over the name and the vocabulary's size."""
        reply = self._call(self._stub.GetInfo, draft_pb2.GetInfoRequest(datastore=self._name), INFO_DEADLINE)
        if len(reply.datastores) > 1:
            names = ", ".join(each.name for each in reply.datastores)
            raise InvalidArgument(
                f"{self.url}: the server has several datastores; put one of {names} at the end of the URL"
            )
        if not reply.datastores:
            raise NotFound(f"{self.url}: the server has no datastore")
        found = reply.datastores[0]
        self._name, self._vocab_size = found.name, found.vocab_size
        facts = read_facts(self.url, "draft service", found.facts_json)
        if facts.get("tokenizer") != self._fingerprint:
            self._fingerprint, self._tokenizer = facts.get("tokenizer"), None
        return {**facts, "url": self.url}

    def tokenizer(self) -> Tokenizer | None:
        """See ``Retriever.tokenizer``. The first use asks the server for it, and checks its fingerprint against the facts.

        Raises:
            Internal: the server sent another tokenizer, or none that can be read.
            ResourceExhausted: the tokenizer is larger than the server sends.
        """
        expected = self._fingerprint
        if self._tokenizer is None and expected is not None:
            request = draft_pb2.GetTokenizerRequest(datastore=self._name)
            reply = self._call(self._stub.GetTokenizer, request, TOKENIZER_DEADLINE)
            self._tokenizer = self._read(lambda sent: wire.unpack_tokenizer(sent.tokenizer_zstd, expected), reply)
        return self._tokenizer

    def close(self) -> None:
        """Hang up; later calls raise Unavailable."""
        self._closed = True
        self._channel.close()

    def _drafting(
        self,
        contexts: Sequence[Tokens],
        max_match: int,
        min_match: int,
        max_depth: int,
        max_nodes: int | Sequence[int],
    ) -> tuple[draft_pb2.DraftRequest, Callable[[draft_pb2.DraftReply], list[DraftTree]]]:
        """The request for drafts, and what reads the reply to it."""
        budgets = [max_nodes] * len(contexts) if isinstance(max_nodes, int) else [int(budget) for budget in max_nodes]
        if len(budgets) != len(contexts):
            raise InvalidArgument(
                f"max_nodes has {len(budgets)} entries for {len(contexts)} contexts; give one per context"
            )
        limits.check_match(max_match, min_match)
        limits.check_depth(max_depth)
        limits.check_nodes(budgets)
        tails = _tails(contexts, max_match)
        request = draft_pb2.DraftRequest(
            datastore=self._name,
            max_match=max_match,
            min_match=min_match,
            max_depth=max_depth,
            queries=[
                draft_pb2.DraftQuery(context=tail, max_nodes=budget)
                for tail, budget in zip(tails, budgets, strict=True)
            ],
        )
        return request, lambda reply: wire.unpack_trees(reply.trees, budgets, max_match, self._vocab_size)

    def _guarded(
        self, method: grpc.UnaryUnaryMultiCallable[Request, Reply], request: Request, read: Callable[[Reply], list[Any]]
    ) -> list[Any]:
        self._require_admission()
        return self._judged(lambda: self._read(read, self._call(method, request, self.deadline)))

    def _require_admission(self) -> None:
        if not self.breaker.admits():
            raise Unavailable(
                f"{self.url}: the last calls failed, so the draft service is left alone for a second; is it running?"
            )

    def _judged(self, answer: Callable[[], list[Any]]) -> list[Any]:
        """The checked reply; the breaker hears how it went. A caller's bad argument is no failure of the server."""
        try:
            found = answer()
        except InvalidArgument:
            self.breaker.succeeded()
            raise
        except SuffolkError:
            self.breaker.failed()
            raise
        self.breaker.succeeded()
        return found

    def _read(self, read: Callable[[Reply], Answer], reply: Reply) -> Answer:
        try:
            return read(reply)
        except InvalidArgument as error:
            raise Internal(f"{self.url}: the draft service sent a bad reply: {error}") from None

    def _call(self, method: grpc.UnaryUnaryMultiCallable[Request, Reply], request: Request, deadline: float) -> Reply:
        return self._translated(lambda: method(request, timeout=deadline), deadline)

    def _translated(self, call: Callable[[], Reply], deadline: float) -> Reply:
        """What ``call`` returns; gRPC's errors become ours."""
        if self._closed:
            raise Unavailable(f"{self.url}: this datastore was closed; open it again")
        try:
            return call()
        except grpc.RpcError as error:
            late = f"no answer within {deadline * 1000:g} ms, the deadline"
            raise call_error(error, describe_url(self.url), "draft service", late) from None
        except (grpc.FutureCancelledError, ValueError) as error:  # another thread closed the channel just now
            raise Unavailable(f"{self.url}: {error}; open it again") from None


def _tails(contexts: Sequence[Tokens], max_match: int) -> list[bytes]:
    """The end of each context, as far as a match can reach, as bytes."""
    limits.check_batch(len(contexts))
    return [
        pack_tokens(to_tokens(context[max(0, len(context) - max_match) :], f"contexts[{place}]"))
        for place, context in enumerate(contexts)
    ]


def _matches(reply: draft_pb2.LookupReply, size: int, max_match: int) -> list[Match]:
    if len(reply.matches) != size:
        raise InvalidArgument(f"matches: there are {len(reply.matches)}, {size} were asked for")
    matches = [Match(match.length, match.count) for match in reply.matches]
    for place, match in enumerate(matches):
        if match.length > max_match or (match.length == 0) != (match.count == 0):
            raise InvalidArgument(f"matches[{place}]: length {match.length} and count {match.count} cannot be")
    return matches
