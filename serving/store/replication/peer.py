"""Calls of another server that has a copy of a live store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import fields, replace
from typing import TypeVar

import grpc

from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.serving.net.call_errors import call_error
from suffolk.serving.net.channel import PING_SECONDS, open_channel
from suffolk.serving.net.proto import replication_pb2, replication_pb2_grpc
from suffolk.serving.net.url import parse_url
from suffolk.serving.store.replication.messages import ReplicaStatus

MAX_MESSAGE_BYTES = 4 << 20
"""Size of one message of a stream."""
_STATE_SECONDS = 1.0
_CHANGE_SECONDS = 10.0
"""Deadlines of calls."""
_AT_A_TIME = 16
"""Copies that are asked at the same time. An unreachable copy takes up to a second."""
Found = Mapping[str, ReplicaStatus | SuffolkError]
T = TypeVar("T")


class Peer:
    """A copy of a live store behind a draft service. Thread-safe.

    All calls raise the errors of the server, and Unavailable or DeadlineExceeded if it does not answer.

    Attributes:
        address: its host and port, for messages.
    """

    def __init__(self, url: str, name: str = "") -> None:
        """``name``: name of the datastore, if ``url`` has none.

        Raises:
            InvalidArgument: the URL is malformed, or names a datastore twice.
        """
        parts = parse_url(url)
        if name and parts.name:
            raise InvalidArgument(f"--peer: {url} names a datastore; leave /{parts.name} out, all live ones are copied")
        parts = replace(parts, name=name or parts.name)
        self.address = parts.target
        self._url = url
        self._name = parts.name
        self._channel = open_channel(parts, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES, _STATE_SECONDS, PING_SECONDS)
        self._stub = replication_pb2_grpc.ReplicationServiceStub(self._channel)

    def status(self) -> ReplicaStatus:
        """Its state."""
        request = replication_pb2.ReplicaRequest(datastore=self._name)
        reply = self._answer(lambda: self._stub.GetState(request, timeout=_STATE_SECONDS))
        return ReplicaStatus(**{each.name: getattr(reply, each.name) for each in fields(ReplicaStatus)})

    def lead(self, accept_loss: bool) -> str:
        """See ``Member.lead``."""
        request = replication_pb2.LeadRequest(datastore=self._name, accept_loss=accept_loss)
        return self._answer(lambda: self._stub.Lead(request, timeout=_CHANGE_SECONDS)).lost

    def follow(
        self, requests: Iterable[replication_pb2.FollowRequest], begun: Callable[[Callable[[], object]], None]
    ) -> Iterator[replication_pb2.FollowReply]:
        """The replies to ``requests``. ``begun`` gets the function that cancels the call."""
        try:
            call = self._stub.Follow(iter(requests))
            begun(call.cancel)
            yield from call
        except grpc.RpcError as error:
            raise call_error(error, self._url, "draft service", "the deadline passed") from None

    def first_request(self) -> replication_pb2.FollowRequest:
        """A request to follow, without the follower's state and documents."""
        return replication_pb2.FollowRequest(datastore=self._name)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _answer(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except grpc.RpcError as error:
            raise call_error(error, self._url, "draft service", "no answer in time") from None


def read_replicas(urls: Sequence[str]) -> Found:
    """URL -> the status of the copy there, or why it did not answer. Raises InvalidArgument: a URL is malformed."""
    with ThreadPoolExecutor(_AT_A_TIME, "suffolk-copies") as pool:
        return dict(zip(urls, pool.map(_read, map(Peer, urls)), strict=True))


def has_leader(found: Iterable[ReplicaStatus | SuffolkError]) -> bool:
    """Whether a copy leads in the latest epoch of all copies that answer."""
    known = [each for each in found if isinstance(each, ReplicaStatus)]
    last = max((each.epoch for each in known), default=0)
    return sum(each.leads and each.epoch == last for each in known) == 1


def have_leaders(shards: Sequence[tuple[str, ...]]) -> bool:
    """Whether each shard, given by the URLs of its copies, has a leader now."""
    with ThreadPoolExecutor(_AT_A_TIME, "suffolk-shards") as pool:
        return all(pool.map(lambda urls: has_leader(read_replicas(urls).values()), shards))


def _read(peer: Peer) -> ReplicaStatus | SuffolkError:
    with closing(peer):
        try:
            return peer.status()
        except SuffolkError as error:
            return error
