"""A live datastore with copies on several servers, for callers that append."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, TypeVar

from suffolk.datastore.arguments import check_flag, check_groups
from suffolk.datastore.context_query import Groups, Tokens
from suffolk.datastore.documents import NO_METADATA, Document, Metadata, check_documents
from suffolk.datastore.errors import DeadlineExceeded, InvalidArgument, NotFound, SuffolkError, Unavailable, Unsupported
from suffolk.serving.draft_service.client import DEFAULT_DEADLINE, MAX_DEADLINE, RemoteDatastore
from suffolk.serving.fanout.address import parse_address
from suffolk.serving.fanout.datastore import FanoutDatastore
from suffolk.serving.fanout.placement import shard_of
from suffolk.serving.fanout.replica_set import ReplicaSet
from suffolk.serving.fanout.servers import Servers
from suffolk.serving.live_store.append_keys import new_key
from suffolk.serving.live_store.batch import Appended
from suffolk.serving.live_store.stats import DocumentState, GroupStats, LiveDeletion, LiveStats
from suffolk.serving.transport.call_errors import REFUSED
from suffolk.serving.transport.limits import check_deadline
from suffolk.serving.transport.store_names import tenant_of

T = TypeVar("T")
REPEAT_SECONDS = 10.0
"""How long an append of which the outcome is unknown is repeated."""
PAUSE_SECONDS = 0.1
_LARGEST = ("generation", "next_sequence", "flushed_sequence", "clock_behind_seconds")
"""Numbers of ``LiveStats`` that do not add up: each shard counts on its own."""


def connect_to_append(name: str, deadline: float | None = None) -> AppendableFanout:
    """Open the live datastore at an address with several servers. Arguments and errors as ``connect_several``."""
    address = parse_address(name)
    deadline = deadline or address.deadline or DEFAULT_DEADLINE
    check_deadline(deadline, MAX_DEADLINE)
    return AppendableFanout(Servers(name, address, deadline), deadline)


class AppendableFanout(FanoutDatastore):
    """A ``FanoutDatastore`` that appends and deletes at the copy that leads. Thread-safe.

    A group lies in one shard, by consistent hashing of tenant and group. A document without a group may lie in any; those of one
    append lie together. Arguments, results and errors are those of ``LiveStore``. A change that a server refused is made at the
    leader. An append whose outcome is unknown is repeated at the leader with its key for some seconds, so it is made once.
    """

    def __init__(self, servers: Servers, deadline: float) -> None:
        super().__init__(servers, deadline)
        self._leaders: dict[str, RemoteDatastore] = {}  # by the first URL of a shard
        self._leaders_lock = threading.Lock()

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
        """See ``LiveStore.append``."""
        ids: Any = self._ids(document)
        return self.append_batch([Document(id, metadata, ids)], group, replace, key)

    def append_batch(
        self, documents: Sequence[Document], group: Groups = None, replace: bool = False, key: str | None = None
    ) -> Appended:
        """See ``LiveStore.append_batch``.

        Raises:
            InvalidArgument: also if the groups are in several shards, because the documents would not appear together.
        """
        check_documents(documents)
        check_groups(group)
        check_flag("replace", replace)
        groups = [group] * len(documents) if group is None or isinstance(group, str) else list(group)
        shards = {self._shard_of(name) for name in groups if name is not None}
        if len(shards) > 1:
            raise InvalidArgument(
                f"the groups of {len(documents)} documents are in {len(shards)} shards; append the documents of each group alone"
            )
        shard = shards.pop() if shards else self._any_shard(documents)
        named = new_key() if key is None else key
        end = time.monotonic() + REPEAT_SECONDS
        unknown: SuffolkError | None = None
        while True:
            try:
                return self._change(shard, lambda store: store.append_batch(documents, group, replace, named))
            except (Unavailable, DeadlineExceeded) as error:
                unknown = error if REFUSED not in str(error) else unknown
                if unknown is None or time.monotonic() > end:
                    raise unknown or error from None
            time.sleep(PAUSE_SECONDS)

    def get(self, id: str) -> DocumentState:
        """See ``LiveStore.get``. The leader of each shard is asked; numbers add up, and the sequence is the largest."""
        found: list[DocumentState] = []
        for shard in range(len(self.servers.shards)):
            with suppress(NotFound):
                found.append(self._change(shard, lambda store: store.get(id)))
        if not found:
            raise NotFound(f"datastore {self.name} has no document with the id {id!r}")
        documents, tokens = sum(each.documents for each in found), sum(each.tokens for each in found)
        return DocumentState(documents, tokens, max(each.sequence for each in found))

    def delete(self, ids: Sequence[str] = (), where: Sequence[str] = (), group: str | None = None) -> LiveDeletion:
        """See ``LiveStore.delete``. Ids and conditions are looked for in each shard, one after the other."""
        if group is not None:
            return self._change(self._shard_of(group), lambda store: store.delete(ids, where, group))
        done = [
            self._change(shard, lambda store: store.delete(ids, where)) for shard in range(len(self.servers.shards))
        ]
        unknown = set(done[0].unknown_ids).intersection(*(each.unknown_ids for each in done))
        return LiveDeletion(
            sum(each.documents for each in done),
            sum(each.tokens for each in done),
            max(each.generation for each in done),
            tuple(sorted(unknown)),
        )

    def seal(self) -> int | None:
        """Raises Unsupported: published files would have no copies."""
        raise Unsupported(
            f"{self.url} has copies on several servers, and published files would have none; do not seal it"
        )

    def stats(self) -> LiveStats:
        """The leaders' statistics; see ``LiveStore.stats``. Sizes are sums over shards. Generation, sequences and clock are the
        largest."""
        found = [asdict(self._change(shard, lambda store: store.stats())) for shard in range(len(self.servers.shards))]
        return LiveStats(**{name: _total(name, [each[name] for each in found]) for name in found[0]})

    def group_stats(self, group: str) -> GroupStats:
        """See ``LiveStore.group_stats``."""
        return self.servers.shards[self._shard_of(group)].ask_any(lambda store: store.group_stats(group))

    def _any_shard(self, documents: Sequence[Document]) -> int:
        """A shard for documents without a group, the same one for the same first document."""
        if not documents:
            return 0  # its leader refuses them
        first = documents[0]
        return self._shard_of(f"\0{first.source or ' '.join(map(str, first.tokens))}")

    def _shard_of(self, group: str) -> int:
        return shard_of(tenant_of(self.name), group, len(self.servers.shards))

    def _change(self, number: int, change: Callable[[RemoteDatastore], T]) -> T:
        """Make a change at the leader of a shard. If the server that led refuses it, look for the leader once more."""
        shard = self.servers.shards[number]
        key = shard.replicas[0].address.url
        known = self._leaders.get(key)
        try:
            if known is not None and any(each.remote is known and not each.mismatched for each in shard):
                return change(known)
        except (Unavailable, DeadlineExceeded) as error:
            self._note_leader(key, None)
            if REFUSED not in str(error):
                raise
        leader = find_leader(shard)
        self._note_leader(key, leader)
        return change(leader)

    def _note_leader(self, key: str, leader: RemoteDatastore | None) -> None:
        with self._leaders_lock:
            self._leaders.pop(key, None)
            if leader is not None:
                self._leaders[key] = leader


def _total(name: str, values: Sequence[Any]) -> Any:
    """A field of ``LiveStats`` of several shards; of texts, the first that is one."""
    known = [each for each in values if each is not None]
    if name == "oldest_time":
        return min(filter(None, known), default=0)  # 0: there is no document
    if name in _LARGEST:
        return max(known)
    return sum(known) if known and not isinstance(known[0], str) else next(iter(known), None)


def find_leader(shard: ReplicaSet) -> RemoteDatastore:
    """The copy that leads in the latest epoch.

    Raises:
        Unavailable: none of those that answer leads.
    """
    found: list[tuple[int, RemoteDatastore]] = []
    problems = []
    for replica in shard:
        if replica.mismatched:
            problems.append(replica.problem)
            continue
        try:
            state = replica.remote.info().get("replica")
        except SuffolkError as error:
            problems.append(str(error))
            continue
        if state is not None and state["leads"]:
            found.append((int(state["epoch"]), replica.remote))
    if not found:
        reason = "; ".join(problems) or "all of them answer"
        raise Unavailable(
            f"no copy leads, so {REFUSED} ({reason}); see what the copies are with 'suffolk promote --dry-run'"
        )
    return max(found, key=lambda each: each[0])[1]
