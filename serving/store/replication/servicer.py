"""The gRPC methods of replication."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict

import grpc

from suffolk.datastore.errors import InvalidArgument, Unsupported
from suffolk.datastore.retriever import Retriever
from suffolk.serving.net.identity import Role, caller
from suffolk.serving.net.proto import replication_pb2, replication_pb2_grpc
from suffolk.serving.net.url import tenant_of
from suffolk.serving.store.replication.feed import Feed, Subscription
from suffolk.serving.store.replication.messages import pack_records, unpack_hello
from suffolk.serving.store.replication.replicated_store import ReplicatedStore

FOLLOW = "suffolk.v1.ReplicationService/Follow"
MAX_FOLLOWERS = 8
"""Followers of one store at a time."""
HEARTBEAT_SECONDS = 0.2
"""Longest time between two messages to a follower. So within this time, a follower learns that it has all changes."""
_FIRST_SECONDS = 5.0
"""Time within which a follower must list its documents."""


class ReplicationServicer(replication_pb2_grpc.ReplicationServiceServicer):
    """Passes messages to the replicas among a server's datastores.

    Args:
        find: the full name and the datastore of a name; raises NotFound if the caller may not read it.
        has_ended: whether the server has answered all other calls. Only then do streams end, because running appends need them.
    """

    def __init__(self, find: Callable[[str], tuple[str, Retriever]], has_ended: Callable[[], bool]) -> None:
        self._find = find
        self._has_ended = has_ended

    def GetState(
        self, request: replication_pb2.ReplicaRequest, context: grpc.ServicerContext
    ) -> replication_pb2.ReplicaState:
        return replication_pb2.ReplicaState(**asdict(self._replica(request.datastore, Role.READ).status()))

    def Lead(self, request: replication_pb2.LeadRequest, context: grpc.ServicerContext) -> replication_pb2.LeadReply:
        store = self._replica(request.datastore, Role.ADMIN)
        return replication_pb2.LeadReply(lost=store.member.lead(request.accept_loss))

    def Follow(
        self, requests: Iterator[replication_pb2.FollowRequest], context: grpc.ServicerContext
    ) -> Iterator[replication_pb2.FollowReply]:
        caller().require_anywhere(Role.ADMIN)  # checked before the wait for the first message, which names the tenant
        timer = threading.Timer(_FIRST_SECONDS, context.cancel)
        timer.daemon = True
        timer.start()
        try:
            first = next(requests, None)
            if first is None:
                raise InvalidArgument("the stream has no message; send first what the follower holds")
            store = self._replica(first.datastore, Role.ADMIN)
            hello = unpack_hello(first, requests)
        finally:
            timer.cancel()
        with store.member.followed(hello) as welcome:
            subscription = welcome.subscription
            threading.Thread(
                target=_read_confirmations, args=(requests, store.feed, subscription), name="confirmed", daemon=True
            ).start()
            identity = replication_pb2.StoreIdentity(**asdict(store.identity))
            yield replication_pb2.FollowReply(identity=identity, epoch=welcome.epoch, refill=welcome.refill)
            for record in welcome.missing:
                yield from pack_records(record)
            seconds = 0.0
            while not self._has_ended():
                batch = store.feed.take(subscription, seconds)
                replies = list(pack_records(batch.records))
                replies[-1].position, replies[-1].digest = batch.position, batch.digest
                replies[-1].time = store.writer.clock.now()
                yield from replies
                seconds = HEARTBEAT_SECONDS

    def _replica(self, name: str, role: Role) -> ReplicatedStore:
        name, store = self._find(name)
        caller().require(tenant_of(name), role)
        if not isinstance(store, ReplicatedStore):
            raise Unsupported(f"datastore {name} has no copies on other servers; serve it with --live and --register")
        return store


def _read_confirmations(
    requests: Iterator[replication_pb2.FollowRequest], feed: Feed, subscription: Subscription
) -> None:
    reason = "the follower left"
    try:
        for request in requests:
            feed.confirm(subscription, request.position)
    except grpc.RpcError as error:
        reason = f"the connection to the follower was lost: {error}"
    finally:
        feed.drop(subscription, reason)
