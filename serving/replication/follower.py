"""Keeps a replica equal to the one that leads."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.proto import replication_pb2
from suffolk.serving.replication.feed import COPY_SECONDS
from suffolk.serving.replication.peer import Peer
from suffolk.serving.replication.replica import ReplicaStatus, ReplicaStore
from suffolk.serving.replication.wire import RecordReader, pack_held, unpack_identity

LOG = logging.getLogger("suffolk.server")
LOOK_SECONDS = 0.5
"""Time between two looks for the leader."""


class Follower:
    """Looks for the leader among ``peers``, and lets ``store`` repeat its changes. One thread looks, another one follows."""

    def __init__(self, store: ReplicaStore, peers: Sequence[Peer]) -> None:
        self._store = store
        self._peers = peers
        self._stopped = threading.Event()
        self._cancel: Callable[[], object] = lambda: None
        self._leader: tuple[Peer, int] | None = None  # that the second thread is to follow, and its epoch
        self._heard = 0.0
        self._stream = threading.Thread()
        self._thread = threading.Thread(target=self._look_regularly, name="suffolk-replica", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End both threads, and close the connections."""
        self._stopped.set()
        self._cancel()
        self._thread.join()
        if self._stream.is_alive():
            self._cancel()
            self._stream.join()
        for peer in self._peers:
            peer.close()

    def _look_regularly(self) -> None:
        while not self._stopped.is_set():
            self._look()
            self._stopped.wait(LOOK_SECONDS)

    def _look(self) -> None:
        if self._stream.is_alive() and time.monotonic() - self._heard > COPY_SECONDS:
            self._cancel()
        found = self._find_leader()
        if found is None or (self._stream.is_alive() and self._leader == found):
            return
        self._leader = found
        if self._stream.is_alive():  # another one leads now
            self._cancel()
            self._stream.join()
        self._heard = time.monotonic()
        self._stream = threading.Thread(target=self._follow, args=found, name="suffolk-follow", daemon=True)
        self._stream.start()

    def _find_leader(self) -> tuple[Peer, int] | None:
        """The peer that leads in the latest epoch, and this epoch; None if none leads that the store may follow."""
        found: list[tuple[Peer, ReplicaStatus]] = []
        for peer in self._peers:
            with suppress(SuffolkError):
                found.append((peer, peer.status()))
        state = self._store.state
        leaders = [
            (peer, status.epoch)
            for peer, status in found
            if status.leads and (status.epoch > state.epoch or (status.epoch == state.epoch and not state.leads))
        ]
        return max(leaders, key=lambda each: each[1], default=None)

    def _follow(self, leader: Peer, epoch: int) -> None:
        try:
            self._repeat_all(leader, epoch)
        except SuffolkError as error:
            if not self._stopped.is_set() and str(error) != self._store.follow_problem:
                LOG.warning("replica %s: following %s ended: %s", self._store.name, leader.address, error)
            self._store.follow_problem = str(error)

    def _repeat_all(self, leader: Peer, epoch: int) -> None:
        confirmed: SimpleQueue[replication_pb2.FollowRequest | None] = SimpleQueue()
        held, position = self._store.held()
        first = leader.first_request(epoch, position)

        def requests() -> Iterator[replication_pb2.FollowRequest]:
            yield from pack_held(held, first)
            while (request := confirmed.get()) is not None:
                yield request

        reader = RecordReader()
        try:
            for reply in leader.follow(requests(), partial(self._note_call, (leader, epoch))):
                self._heard = seen = time.monotonic()
                if reply.HasField("identity"):
                    epoch = reply.epoch
                    self._store.begin_following(epoch, unpack_identity(reply.identity), leader.address)
                    continue
                self._heard = math.inf  # it is this side that works
                position = self._store.repeat(reader.read(reply), epoch, bool(reply.position))
                self._heard = time.monotonic()
                confirmed.put(replication_pb2.FollowRequest(position=position if reply.position else 0))
                if reply.position:
                    self._store.lag.note(reply.position - position, seen)
                    self._store.follow_problem = ""
        finally:
            confirmed.put(None)

    def _note_call(self, leader: tuple[Peer, int], cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        if self._stopped.is_set() or self._leader != leader:
            cancel()
