"""Packs and unpacks the messages of replication."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from suffolk.datastore.errors import Internal, InvalidArgument
from suffolk.serving.live_store.identity import StoreIdentity
from suffolk.serving.live_store.record import Change, decode
from suffolk.serving.proto import replication_pb2
from suffolk.serving.replication.missing_changes import Runs

PART_BYTES = 2 << 20
"""Bytes of records, or of runs of documents, in one message."""


def pack_held(held: Runs, first: replication_pb2.FollowRequest) -> Iterator[replication_pb2.FollowRequest]:
    """The first messages of a follower. ``first``: the beginning of the first one."""
    packed = held.astype("<u8").tobytes()
    for place in range(0, max(len(packed), 1), PART_BYTES):
        request = first if place == 0 else replication_pb2.FollowRequest()
        request.held = packed[place : place + PART_BYTES]
        request.more = place + PART_BYTES < len(packed)
        yield request


def unpack_held(first: replication_pb2.FollowRequest, requests: Iterator[replication_pb2.FollowRequest]) -> Runs:
    """What a follower holds: from its ``first`` message, and from as many of the next ``requests`` as belong to it.

    Raises:
        InvalidArgument: it is malformed.
    """
    parts, more = [first.held], first.more
    while more:
        request = next(requests, None)
        if request is None:
            raise InvalidArgument("held: the stream ended before the last part; send it, with 'more' unset")
        parts.append(request.held)
        more = request.more
    packed = b"".join(parts)
    if len(packed) % 16:
        raise InvalidArgument(f"held has {len(packed)} bytes; it must have 16 for each run")
    runs = np.frombuffer(packed, "<u8").reshape(-1, 2)
    flat = runs.reshape(-1)
    if len(flat) and not (flat[1:] >= flat[:-1]).all():
        raise InvalidArgument("held: the runs do not rise; send them in order")
    return runs


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
