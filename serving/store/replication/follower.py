"""Runs a replica: one thread decides, and another thread follows the leader."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue

from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.periodic_thread import PeriodicThread
from suffolk.serving.net.proto import replication_pb2
from suffolk.serving.store.live_store.identity import StoreIdentity, create_identity, is_free
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.replication.messages import ReplicaStatus, pack_hello, unpack_records
from suffolk.serving.store.replication.peer import Peer
from suffolk.serving.store.replication.register import Register
from suffolk.serving.store.replication.replicated_store import ReplicaSettings, ReplicatedStore

LOG = logging.getLogger("suffolk.server")
TICK_SECONDS = 0.25
"""Time between two decisions. If the connection to the leader ends, a decision follows immediately."""
ASK_SECONDS = 0.3
"""How long a decision waits for the answers of other copies. A later answer counts for the next decision."""
Leader = tuple[str, int]
"""The id of a leader, and its epoch."""


def open_replica(
    path: Path,
    settings: LiveSettings,
    register: Register,
    replicas: ReplicaSettings,
    peers: Sequence[Peer],
    tokenizer: str | None = None,
) -> ReplicatedStore:
    """The replica in the folder ``path``, which is made if it does not exist. Its ``close`` closes ``peers``.

    Args:
        peers: the other servers that have a copy.
        tokenizer: tokenizer of a new store.

    Raises:
        The errors of ``create_live_store`` and ``ReplicatedStore``.
    """
    if is_free(path):
        create_identity(path, tokenizer, None, 64)
    store = ReplicatedStore(path, settings, register, replicas)
    store.before_close(Follower(store, peers).close)
    return store


class Follower:
    """Runs ``store`` as one copy; ``peers`` are the other copies."""

    def __init__(self, store: ReplicatedStore, peers: Sequence[Peer]) -> None:
        self._store, self._peers = store, peers
        self._by_id: dict[str, Peer] = {}
        self._pool = ThreadPoolExecutor(max(1, len(peers)), "suffolk-peers")
        self._asked: dict[Peer, Future[ReplicaStatus | None]] = {}
        self._stopped = threading.Event()
        self._cancel: Callable[[], object] = lambda: None
        self._leader: Leader | None = None  # whom the second thread follows
        self._stream = threading.Thread()
        self._thread = PeriodicThread(f"replica-{store.name}", self._decide, TICK_SECONDS)
        self._thread.wake()

    def close(self) -> None:
        """End both threads, and close the connections."""
        self._stopped.set()
        self._cancel()
        self._thread.close()
        self._end_stream()
        self._pool.shutdown()
        for peer in self._peers:
            peer.close()

    def _decide(self) -> None:
        try:
            self._follow_leader(self._store.member.tick(self._ask))
        except SuffolkError as error:
            self._report(str(error))

    def _ask(self) -> Mapping[str, ReplicaStatus]:
        """The answers of other copies. A copy that has not answered the previous question yet is not waited for."""
        asked = {peer: self._pool.submit(_status, peer) for peer in self._peers if peer not in self._asked}
        self._asked |= asked
        wait(asked.values(), ASK_SECONDS)
        answers = {peer: self._asked.pop(peer).result() for peer in self._peers if self._asked[peer].done()}
        self._by_id |= {status.id: peer for peer, status in answers.items() if status is not None}
        return {status.id: status for status in answers.values() if status is not None}

    def _follow_leader(self, leader: Leader | None) -> None:
        if leader is None or (
            self._stream.is_alive() and self._leader == leader and not self._store.member.is_stalled()
        ):
            return
        self._end_stream()
        if (peer := self._by_id.get(leader[0])) is not None:
            self._leader = leader
            self._stream = threading.Thread(
                target=self._follow, args=(peer, leader), name="suffolk-follow", daemon=True
            )
            self._stream.start()

    def _end_stream(self) -> None:
        self._leader = None
        self._cancel()
        if self._stream.is_alive():
            self._stream.join()

    def _follow(self, peer: Peer, leader: Leader) -> None:
        begun = time.monotonic()
        try:
            self._repeat_all(peer, leader)
        except SuffolkError as error:
            if not self._stopped.is_set() and self._leader == leader:
                self._report(f"following {peer.address} ended: {error}")
        finally:
            self._store.member.end_following()
            if time.monotonic() - begun > TICK_SECONDS:  # after a quick failure, the next one waits a tick
                self._thread.wake()

    def _repeat_all(self, peer: Peer, leader: Leader) -> None:
        member, epoch = self._store.member, leader[1]
        confirmed: SimpleQueue[replication_pb2.FollowRequest | None] = SimpleQueue()
        hello = member.hello(epoch)

        def requests() -> Iterator[replication_pb2.FollowRequest]:
            yield from pack_hello(hello, peer.first_request())
            while (request := confirmed.get()) is not None:
                yield request

        try:
            for records, reply in unpack_records(peer.follow(requests(), partial(self._note_call, leader))):
                if reply.HasField("identity"):
                    sent = reply.identity
                    tokenizer = sent.tokenizer or None
                    self._store.adopt(StoreIdentity(sent.vocab_size, sent.order_depth, tokenizer, sent.group_secret))
                    member.begin_following(reply.epoch, reply.refill, peer.address)
                    continue
                ahead = (reply.position, reply.digest) if reply.position else None
                position = member.repeat(records, epoch, ahead, reply.time)
                confirmed.put(replication_pb2.FollowRequest(position=position if ahead else 0))
        finally:
            confirmed.put(None)

    def _note_call(self, leader: Leader, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        if self._stopped.is_set() or self._leader != leader:
            cancel()

    def _report(self, problem: str) -> None:
        """Log a new problem once."""
        if problem != self._store.member.problem:
            LOG.warning("replica %s: %s", self._store.name, problem)
        self._store.member.problem = problem


def _status(peer: Peer) -> ReplicaStatus | None:
    with suppress(SuffolkError):
        return peer.status()
    return None
