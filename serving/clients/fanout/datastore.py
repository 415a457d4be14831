"""A datastore that several servers serve, with the methods of a local datastore."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from copy import copy
from typing import Any, TypeVar

from tokenizers import Tokenizer

from suffolk.datastore.arguments import check_deadline
from suffolk.datastore.context_query import ContextQuery, OccurrenceQuery
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, SuffolkError, Unavailable, Unsupported
from suffolk.datastore.merged import merged_info, shared_limit
from suffolk.datastore.retriever import Match, Retriever
from suffolk.serving.clients.fanout.replica_set import ReplicaSet
from suffolk.serving.clients.fanout.servers import Servers
from suffolk.serving.clients.fanout.shards import ShardCall
from suffolk.serving.clients.fanout.topology import parse_address, shard_of
from suffolk.serving.clients.remote_datastore import (
    DEFAULT_DEADLINE,
    MAX_DEADLINE,
    PREFETCH_DEADLINE,
    RemoteDatastore,
    draft_deadline,
)
from suffolk.serving.net.url import tenant_of

T = TypeVar("T")
_THREADS = 4
"""Calls of ``draft_batch_future`` at a time. A drafter has one in flight."""


class FanoutDatastore(Retriever):
    """A ``Retriever`` over several draft services. Thread-safe.

    Each call goes to one replica. A failed call is sent to another replica. A late call is sent to a second replica as
    well. If no replica answers in time, errors are as in ``RemoteDatastore``.
    """

    def __init__(self, name: str, deadline: float | None = None) -> None:
        """Open the datastore at the address ``name`` of several servers (``topology.py``).

        Args:
            deadline: seconds that a draft or lookup may take; None uses the address's deadline, else DEFAULT_DEADLINE.

        Raises:
            InvalidArgument: the address is malformed, or two servers differ in their vocabulary or tokenizer.
            NotFound: the topology file cannot be read.
            Others as ``connect``, if no server answers.
        """
        address = parse_address(name)
        self.url = name
        given = address.deadline if deadline is None else deadline
        self.deadline = DEFAULT_DEADLINE if given is None else given
        self._is_patient = given is None
        check_deadline(self.deadline, MAX_DEADLINE)
        self.servers = Servers(name, address, self.deadline)
        self._selected: tuple[str, ...] | None = None
        self._pool = ThreadPoolExecutor(_THREADS, "suffolk-fanout-call")

    @property
    def name(self) -> str:
        """See ``Retriever.name``. Several names are joined by commas."""
        return ",".join(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        return self._selected or self.servers.names

    @property
    def vocab_size(self) -> int:
        return self.servers.vocab_size

    @property
    def healthy(self) -> bool:
        """Whether a server of each shard is up and has answered its last call."""
        return all(shard.healthy for shard in self.servers.shards)

    @property
    def has_groups(self) -> bool:
        """See ``Retriever.has_groups``. False for shards: they only search one group at a time, with scope ``group``."""
        shards = self.servers.shards
        return len(shards) == 1 and any(replica.remote.has_groups for replica in shards[0] if replica.is_up)

    def find_matches(self, query: ContextQuery) -> list[Match]:
        call = self._shard_call(query, self.deadline)
        return self._counted(call, call.matches(query))

    def find_drafts(self, query: ContextQuery) -> list[DraftTree]:
        return self._draft(query, draft_deadline(query, self.deadline, self._is_patient))

    def draft_batch_future(self, query: ContextQuery) -> Future[list[DraftTree]]:
        """See ``RemoteDatastore.draft_batch_future``. Unavailable is raised immediately if no server is up."""
        shards = self.servers.shards
        if not any(shard.is_up for shard in shards):
            raise shards[0].unavailable()
        deadline = max(draft_deadline(query, self.deadline, self._is_patient), PREFETCH_DEADLINE)
        try:
            return self._pool.submit(copy_context().run, self._draft, query, deadline)
        except RuntimeError:  # the pool is shut down
            raise Unavailable(f"{self.url}: this datastore was closed; open it again") from None

    def find_occurrences(self, query: OccurrenceQuery) -> list[Occurrence]:
        """See ``Retriever.occurrences``. Shards share the limit as several datastores do; shards that do not answer give no
        occurrences."""
        shards = self._searched(query.whole)
        if len(shards) == 1:
            return shards[0].ask_any(lambda remote: self._select(remote).find_occurrences(query))
        matches = self._ask_all(lambda remote: remote.find_matches(query.whole)[0])
        shares = shared_limit({shard: match.count for shard, match in matches.items()}, query.limit)

        def find(shard: int, limit: int) -> list[Occurrence]:
            part = query._replace(limit=limit)
            return shards[shard].ask_any(lambda remote: self._select(remote).find_occurrences(part))

        return [place for shard, limit in shares.items() if limit for place in find(shard, limit)]

    def info(self) -> dict[str, Any]:
        """The info of the datastore, with ``url`` and ``servers``: for each URL its shard, zone, generation and problem.

        With several shards, it is ``merged_info`` of the shards that answer, and ``shards`` holds the info of each.
        """
        shards = self._ask_all(lambda remote: remote.info())
        if len(self.servers.shards) == 1:
            info = shards[0]
        else:
            info = merged_info({f"shard {number}": each for number, each in shards.items()})
            info["shards"] = info.pop("datastores")
        servers = {
            replica.label: {
                "shard": number,
                "zone": replica.address.zone,
                "generation": replica.generation,
                "problem": replica.problem,
            }
            for number, shard in enumerate(self.servers.shards)
            for replica in shard
        }
        return {**info, "url": self.url, "servers": servers}

    def select(self, names: Collection[str]) -> FanoutDatastore:
        """See ``Retriever.select``. The returned datastore shares these connections."""
        found = copy(self)
        found._selected = self._ask_any(lambda remote: self._select(remote).select(names).names)
        return found

    def tokenizer(self) -> Tokenizer | None:
        return self._ask_any(lambda remote: remote.tokenizer())

    def close(self) -> None:
        """Close all connections; later calls raise Unavailable."""
        self._pool.shutdown(cancel_futures=True)
        self.servers.close()

    def _draft(self, query: ContextQuery, deadline: float) -> list[DraftTree]:
        call = self._shard_call(query, deadline)
        return self._counted(call, call.drafts(query))

    def _shard_call(self, query: ContextQuery, deadline: float) -> ShardCall:
        return ShardCall(self._searched(query), self._select, deadline)

    def _searched(self, query: ContextQuery) -> Sequence[ReplicaSet]:
        """The shards that hold the text that ``query`` searches. Raises Unsupported: the text may be in the shard of a
        group and in other shards."""
        shards = self.servers.shards
        if len(shards) == 1 or query.scope == "store" or not any(query.has_group):
            return shards
        if query.scope == "group" and isinstance(query.group, str):
            return [shards[shard_of(tenant_of(self.name), query.group, len(shards))]]
        raise Unsupported(
            f"{self.url}: {len(shards)} shards cannot search groups with scope {query.scope or 'group_first'!r}; name one group "
            "for all contexts and use scope 'group', or leave groups out"
        )

    def _counted(self, call: ShardCall, answer: list[T]) -> list[T]:
        """Return ``answer``, and count it if it is partial."""
        if call.lost:
            self.servers.count_partial("shard")
        elif call.unproven:
            self.servers.count_partial("unproven")
        return answer

    def _ask_any(self, ask: Callable[[RemoteDatastore], T]) -> T:
        """The answer of the first shard that has one."""
        return next(iter(self._ask_all(ask).values()))

    def _ask_all(self, ask: Callable[[RemoteDatastore], T]) -> dict[int, T]:
        """The answers of the shards that answer. Raises the first error if no shard answers."""
        found: dict[int, T] = {}
        errors: list[SuffolkError] = []
        for number, shard in enumerate(self.servers.shards):
            try:
                found[number] = shard.ask_any(lambda remote: ask(self._select(remote)))
            except InvalidArgument:
                raise
            except SuffolkError as error:
                errors.append(error)
        if not found:
            raise errors[0]
        return found

    def _select(self, remote: RemoteDatastore) -> RemoteDatastore:
        """The chosen datastores of a server."""
        return remote if self._selected is None else remote.select(self._selected)
