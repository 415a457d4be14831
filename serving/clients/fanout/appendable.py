"""A live datastore with copies on several servers, for callers that append."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple, TypeVar

from suffolk.datastore.appendable import (
    Appendable,
    Appended,
    DocumentState,
    GroupStats,
    LiveDeletion,
    LiveStats,
    new_key,
)
from suffolk.datastore.arguments import check_flag, check_groups
from suffolk.datastore.context_query import Groups
from suffolk.datastore.documents import Document, check_documents
from suffolk.datastore.errors import (
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    SuffolkError,
    Unavailable,
    Unsupported,
)
from suffolk.serving.clients.fanout.datastore import FanoutDatastore
from suffolk.serving.clients.fanout.replica_set import ReplicaSet
from suffolk.serving.clients.fanout.topology import shard_of
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.net.url import tenant_of

T = TypeVar("T")
REPEAT_SECONDS = 10.0
"""How long a change of unknown outcome is repeated."""
REFUSED_SECONDS = 3.0
"""How long a refused change is repeated. If another copy can lead, it does so within this time."""
TRY_SECONDS = 1.0
"""Deadline of the first try of a change. After each late try, the deadline doubles, because a large change may need
it."""
FIND_SECONDS = 0.5
"""Deadline of asking the copies which one leads."""
PAUSE_SECONDS = 0.1
_LARGEST = ("generation", "next_sequence", "flushed_sequence", "clock_behind_seconds")
"""Numbers of ``LiveStats`` whose maximum is taken, because each shard counts on its own."""


class Leader(NamedTuple):
    """The copy that led last, and its epoch. ``remote`` is None before the first call, and after a failed call."""

    epoch: int = 0
    remote: RemoteDatastore | None = None


class AppendableFanout(FanoutDatastore, Appendable):
    """A ``FanoutDatastore`` that appends and deletes at the copy that leads. Thread-safe.

    A group lies in one shard, by rendezvous hashing of tenant and group. A document without a group may lie in any
    shard. All documents of one append lie in the same shard. Arguments, results and errors are as in ``LiveStore``. A
    change that another copy refused is sent to the leader. If no copy takes a change, or its outcome is unknown, it is
    repeated for some seconds, because another copy may lead soon. Keys make sure that an append takes effect once. A
    repeated deletion counts only the documents that were left.
    """

    def __init__(self, name: str, deadline: float | None = None) -> None:
        super().__init__(name, deadline)
        self._leaders: dict[str, Leader] = {}  # by the first URL of a shard

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
        once = new_key() if key is None else key
        return self._make(shard, lambda seconds, store: store.append_once(documents, group, replace, once, seconds))

    def get(self, id: str) -> DocumentState:
        """See ``LiveStore.get``. The leader of each shard is asked; numbers add up, and the sequence is the largest."""
        found: list[DocumentState] = []
        for shard in range(len(self.servers.shards)):
            with suppress(NotFound):
                found.append(self._ask_leader(shard, lambda store: store.get(id)))
        if not found:
            raise NotFound(f"datastore {self.name} has no document with the id {id!r}")
        documents, tokens = sum(each.documents for each in found), sum(each.tokens for each in found)
        return DocumentState(documents, tokens, max(each.sequence for each in found))

    def delete(self, ids: Sequence[str] = (), where: Sequence[str] = (), group: str | None = None) -> LiveDeletion:
        """See ``LiveStore.delete``. Ids and conditions are searched in each shard, one shard after the other."""

        def delete(shard: int) -> LiveDeletion:
            gone = LiveDeletion(0, 0, 0, ())
            return self._make(shard, lambda seconds, store: store.delete(ids, where, group, seconds), gone)

        if group is not None:
            return delete(self._shard_of(group))
        done = list(map(delete, range(len(self.servers.shards))))
        unknown = set(done[0].unknown_ids).intersection(*(each.unknown_ids for each in done))
        return LiveDeletion(
            sum(each.documents for each in done),
            sum(each.tokens for each in done),
            max(each.generation for each in done),
            tuple(sorted(unknown)),
        )

    def flush(self) -> int | None:
        """Raises Unsupported: published files would have no copies."""
        raise Unsupported(
            f"{self.url} has copies on several servers, and published files would have none; do not flush it"
        )

    def stats(self) -> LiveStats:
        """The leaders' statistics; see ``LiveStore.stats``. Sizes are sums over shards. Generation, sequences and clock are the
        largest."""
        shards = range(len(self.servers.shards))
        found = [asdict(self._ask_leader(shard, lambda store: store.stats())) for shard in shards]
        return LiveStats(**{name: _total(name, [each[name] for each in found]) for name in found[0]})

    def group_stats(self, group: str) -> GroupStats:
        """See ``LiveStore.group_stats``."""
        return self.servers.shards[self._shard_of(group)].ask_any(lambda store: store.group_stats(group))

    def _any_shard(self, documents: Sequence[Document]) -> int:
        """A shard for documents without a group. The first document decides which."""
        if not documents:
            return 0  # the leader of shard 0 refuses the documents
        first = documents[0]
        return self._shard_of(f"\0{first.source or ' '.join(map(str, first.tokens))}")

    def _shard_of(self, group: str) -> int:
        return shard_of(tenant_of(self.name), group, len(self.servers.shards))

    def _make(self, number: int, change: Callable[[float, RemoteDatastore], T], gone: T | None = None) -> T:
        """Make a change at the leader of a shard. ``change``: gets a deadline in seconds and the leader.

        Args:
            gone: the outcome if a repetition finds nothing; None: the error is raised.
        """
        seconds, begun = TRY_SECONDS, time.monotonic()
        unknown: SuffolkError | None = None
        while True:
            try:
                return self._ask_leader(number, partial(change, seconds))
            except NotFound:
                if unknown is None or gone is None:
                    raise
                return gone
            except (Unavailable, DeadlineExceeded) as error:
                unknown = unknown if error.change == "none" else error
                if time.monotonic() > begun + (REFUSED_SECONDS if unknown is None else REPEAT_SECONDS):
                    raise unknown or error from None
                if isinstance(error, DeadlineExceeded):  # only a late try shows that more time is needed
                    seconds = min(2 * seconds, REPEAT_SECONDS)
            time.sleep(PAUSE_SECONDS)

    def _ask_leader(self, number: int, ask: Callable[[RemoteDatastore], T]) -> T:
        """The answer of the leader of a shard. If the last known leader refuses, the leader is looked for once more."""
        shard = self.servers.shards[number]
        key = shard.replicas[0].address.url
        epoch, remote = self._leaders.get(key, Leader())
        if remote is not None and any(each.remote is remote and not each.mismatched for each in shard):
            try:
                return ask(remote)
            except (Unavailable, DeadlineExceeded) as error:
                self._leaders[key] = Leader(epoch)
                if error.change != "none":
                    raise
        leader = find_leader(shard, epoch)
        self._leaders[key] = leader
        assert leader.remote is not None
        return ask(leader.remote)


def _total(name: str, values: Sequence[Any]) -> Any:
    """A field of ``LiveStats`` of several shards. Numbers are combined. Of texts, the first is taken."""
    known = [each for each in values if each is not None]
    if name == "oldest_time":
        return min(filter(None, known), default=0)  # 0: there is no document
    if name in _LARGEST:
        return max(known)
    return sum(known) if known and not isinstance(known[0], str) else next(iter(known), None)


def find_leader(shard: ReplicaSet, last: int = 0) -> Leader:
    """The copy that leads in the latest epoch. A leader of a later epoch than ``last`` is taken before all copies have
    answered.

    Raises:
        Unavailable: no copy that answers leads.
    """
    fitting = [each for each in shard if not each.mismatched]
    problems = [each.problem for each in shard if each.mismatched]
    found = Leader()
    pool = ThreadPoolExecutor(max(1, len(fitting)), "suffolk-leader")
    asked = {pool.submit(each.remote.info, FIND_SECONDS): each.remote for each in fitting}
    pool.shutdown(wait=False)
    for answer in as_completed(asked):
        try:
            state = answer.result().get("replica")
        except SuffolkError as error:
            problems.append(str(error))
            continue
        if state is not None and state["leads"]:
            found = max(found, Leader(int(state["epoch"]), asked[answer]), key=lambda each: each.epoch)
            if found.epoch > last > 0:
                break
    if found.remote is None:
        reason = "; ".join(problems) or "all of them answer"
        raise Unavailable(
            f"no copy leads, so nothing is changed ({reason}); see the state of the copies with 'suffolk promote --dry-run'",
            change="none",
        )
    return found
