"""Packs and unpacks the messages of replication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from suffolk.datastore.errors import Internal, InvalidArgument
from suffolk.serving.live_store.identity import StoreIdentity
from suffolk.serving.live_store.record import Change, decode
from suffolk.serving.proto import replication_pb2
from suffolk.serving.replication.messages import Hello
from suffolk.serving.transport.limits import MAX_NAME

PART_BYTES = 2 << 20
"""Bytes of records, or of the list of documents, in one message."""
MAX_HELD_BYTES = 512 << 20
"""Bytes of the list of a follower's documents."""


def pack_hello(hello: Hello, first: replication_pb2.FollowRequest) -> Iterator[replication_pb2.FollowRequest]:
    """The first messages of a follower. ``first``: the beginning of the first one."""
    packed = hello.held.astype("<u8").tobytes()
    first.epoch, first.replica, first.position = hello.epoch, hello.replica, hello.position
    for place in range(0, max(len(packed), 1), PART_BYTES):
        request = first if place == 0 else replication_pb2.FollowRequest()
        request.held = packed[place : place + PART_BYTES]
        request.more = place + PART_BYTES < len(packed)
        yield request


def unpack_hello(first: replication_pb2.FollowRequest, requests: Iterator[replication_pb2.FollowRequest]) -> Hello:
    """What a follower says: in its ``first`` message, and in as many of the next ``requests`` as belong to it.

    Raises:
        InvalidArgument: it is malformed.
    """
    if not 0 < len(first.replica) <= MAX_NAME:
        raise InvalidArgument(f"replica has {len(first.replica)} characters; it must have 1 to {MAX_NAME}")
    parts, more, size = [first.held], first.more, len(first.held)
    while more:
        request = next(requests, None)
        if request is None:
            raise InvalidArgument("held: the stream ended before the last part; send it, with 'more' unset")
        parts.append(request.held)
        more, size = request.more, size + len(request.held)
        if size > MAX_HELD_BYTES:
            raise InvalidArgument(f"held has more than {MAX_HELD_BYTES} bytes; it has 16 for each document")
    packed = b"".join(parts)
    if len(packed) % 16:
        raise InvalidArgument(f"held has {len(packed)} bytes; it must have 16 for each document")
    held = np.frombuffer(packed, "<u8").reshape(-1, 2)
    if not (held[1:, 0] > held[:-1, 0]).all():
        raise InvalidArgument("held: the numbers do not rise; send the documents in order")
    return Hello(first.replica, first.epoch, held, first.position)


def pack_records(records: Iterable[bytes]) -> Iterator[replication_pb2.FollowReply]:
    """Messages with ``records``, each of them in one or more."""
    for record in records:
        for place in range(0, len(record), PART_BYTES):
            part = record[place : place + PART_BYTES]
            yield replication_pb2.FollowReply(records=part, more=place + PART_BYTES < len(record))


class RecordReader:
    """Puts the parts of records together again."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def read(self, reply: replication_pb2.FollowReply) -> list[Change]:
        """The changes that end with ``reply``.

        Raises:
            Internal: it is malformed.
        """
        self._parts.append(reply.records)
        if reply.more:
            return []
        data, found = memoryview(b"".join(self._parts)), []
        self._parts = []
        while len(data):
            record = decode(data)
            if record is None:
                raise Internal("the leader sent a damaged record; check its version and the network")
            found.append(record[0])
            data = data[record[1] :]
        return found


def pack_identity(identity: StoreIdentity) -> replication_pb2.StoreIdentity:
    """The message of ``identity``."""
    return replication_pb2.StoreIdentity(
        vocab_size=identity.vocab_size,
        order_depth=identity.order_depth,
        tokenizer=identity.tokenizer or "",
        group_secret=identity.group_secret,
    )


def unpack_identity(message: replication_pb2.StoreIdentity) -> StoreIdentity:
    """The inverse of ``pack_identity``."""
    return StoreIdentity(message.vocab_size, message.order_depth, message.tokenizer or None, message.group_secret)
