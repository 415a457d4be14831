"""The messages between copies, and how they are packed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from suffolk.datastore.errors import Internal, InvalidArgument
from suffolk.datastore.limits import MAX_NAME
from suffolk.serving.net.proto import replication_pb2
from suffolk.serving.store.live_store.record import Record, decode
from suffolk.serving.store.replication.documents import Listed
from suffolk.serving.store.replication.feed import Subscription

PART_BYTES = 2 << 20
"""Bytes of records, or of the list of documents, in one message."""
MAX_HELD_BYTES = 512 << 20
"""Bytes of the list of a follower's documents."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """The state of a replica. ``info()["replica"]`` holds it.

    Attributes:
        id: random id of the replica, kept in its folder.
        run: id of its process.
        epoch: the last epoch that it knows of.
        leads: whether it leads in that epoch.
        in_sync: whether it has all acknowledged changes, as far as it knows.
        compared: whether it has led, or was compared with a leader, since it started.
        position, digest: the number of its next change, and the sum of the checksums of its documents.
        write_quorum: copies that a change needs before it is acknowledged.
        followers: for a leader, the number of followers that have all or nearly all changes.
    """

    id: str
    run: str
    epoch: int
    leads: bool
    in_sync: bool
    compared: bool
    position: int
    digest: int
    write_quorum: int
    followers: int


@dataclass(frozen=True, slots=True)
class Hello:
    """A follower's first message. ``held``: the follower's documents. ``position``: its next number."""

    replica: str
    epoch: int
    held: Listed
    position: int


@dataclass(frozen=True, slots=True)
class Welcome:
    """A leader's answer: the subscription to all changes from now on, and the earlier records that the follower lacks.

    Attributes:
        refill: the follower must forget all of its documents first. It may do so only when it is not in sync.
    """

    epoch: int
    refill: bool
    subscription: Subscription
    missing: Iterator[bytes]


def pack_hello(hello: Hello, first: replication_pb2.FollowRequest) -> Iterator[replication_pb2.FollowRequest]:
    """The first messages of a follower. ``first``: the beginning of the first message."""
    first.epoch, first.replica, first.position = hello.epoch, hello.replica, hello.position
    for held, more in _parts(hello.held.astype("<u8").tobytes()):
        first.held, first.more = held, more
        yield first
        first = replication_pb2.FollowRequest()


def unpack_hello(first: replication_pb2.FollowRequest, requests: Iterator[replication_pb2.FollowRequest]) -> Hello:
    """The ``Hello`` of a follower, from its ``first`` message and the ``requests`` that belong to it.

    Raises:
        InvalidArgument: it is malformed.
    """
    if not 0 < len(first.replica) <= MAX_NAME:
        raise InvalidArgument(f"replica has {len(first.replica)} characters; it must have 1 to {MAX_NAME}")
    packed, more = bytearray(first.held), first.more
    while more:
        request = next(requests, None)
        if request is None:
            raise InvalidArgument("held: the stream ended before the last part; send it, with 'more' unset")
        packed += request.held
        more = request.more
        if len(packed) > MAX_HELD_BYTES:
            raise InvalidArgument(f"held has more than {MAX_HELD_BYTES} bytes; it has 16 for each document")
    if len(packed) % 16:
        raise InvalidArgument(f"held has {len(packed)} bytes; it must have 16 for each document")
    held = np.frombuffer(packed, "<u8").reshape(-1, 2)
    if not (held[1:, 0] > held[:-1, 0]).all():
        raise InvalidArgument("held: the numbers do not rise; send the documents in order")
    return Hello(first.replica, first.epoch, held, first.position)


def pack_records(records: bytes) -> Iterator[replication_pb2.FollowReply]:
    """One or more messages with ``records``."""
    for part, more in _parts(records):
        yield replication_pb2.FollowReply(records=part, more=more)


def unpack_records(
    replies: Iterable[replication_pb2.FollowReply],
) -> Iterator[tuple[list[Record], replication_pb2.FollowReply]]:
    """The records in ``replies``, as lists, each with the message that ends it.

    Raises:
        Internal: they are malformed.
    """
    packed = bytearray()
    for reply in replies:
        packed += reply.records
        if not reply.more:
            yield records_of(bytes(packed)), reply
            packed.clear()


def records_of(sent: bytes) -> list[Record]:
    """The records in the bytes that were ``sent``. Raises Internal: they are malformed."""
    data, found = memoryview(sent), []
    while data:
        record = decode(data)
        if record is None:
            raise Internal("the leader sent a damaged record; check its version and the network")
        found.append(record)
        data = data[record.bytes :]
    return found


def _parts(data: bytes) -> Iterator[tuple[bytes, bool]]:
    """``data`` in one or more parts, each with a flag: whether another part follows."""
    for end in range(PART_BYTES, max(len(data), 1) + PART_BYTES, PART_BYTES):
        yield data[end - PART_BYTES : end], end < len(data)
