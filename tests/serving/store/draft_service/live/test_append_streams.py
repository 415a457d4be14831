"""Streams of appends: parts, broken and silent streams, and the number of streams."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from suffolk.datastore.documents import Document
from suffolk.datastore.errors import (
    InvalidArgument,
    ResourceExhausted,
)
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.store.draft_service import streams
from suffolk.serving.store.live_store.store import LiveStore
from tests.support.draft_server import VOCABULARY
from tests.support.waiting import HANG, until

APPEND = draft_pb2.AppendRequest


def document(tokens: list[int], source: str | None = None, **metadata: Any) -> Document:
    return Document(source, metadata, np.asarray(tokens, np.uint32))


def test_a_stream_appends_in_parts(remote: RemoteDatastore, store: LiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suffolk.serving.clients.remote_writer.STREAM_TOKENS", 64)
    appended = remote.append_stream((document([1, 2, number % VOCABULARY]) for number in range(200)), group="g")
    assert (appended.documents, appended.tokens) == (200, 600)
    assert store.group_stats("g").documents == 200
    with pytest.raises(InvalidArgument) as caught:
        remote.append_stream(document([1 if number < 20 else VOCABULARY]) for number in range(24))
    assert "message 5 of the stream: document 0 has token id 40" in str(caught.value)
    assert "20 documents before it are appended" in str(caught.value)
    with pytest.raises(ZeroDivisionError):  # of the caller's own iterator
        remote.append_stream(document([1 // (3 - number)]) for number in range(9))
    with pytest.raises(InvalidArgument, match="the stream has no message"):
        remote.append_stream([])


def test_a_broken_stream_keeps_what_came_before(stub: draft_pb2_grpc.DraftServiceStub, store: LiveStore) -> None:
    sent, done = threading.Event(), threading.Event()

    def requests() -> Iterator[draft_pb2.AppendRequest]:
        yield APPEND(datastore="chat", tokens=np.array([1, 2], "<i4").tobytes(), lengths=np.array([2], "<u4").tobytes())
        sent.set()
        done.wait(HANG)

    call = stub.AppendStream.future(requests(), timeout=HANG)
    assert sent.wait(HANG)
    until(lambda: store.stats().documents == 1)
    call.cancel()
    done.set()
    assert store.lookup([1, 2]).count == 1


def refused(remote: RemoteDatastore) -> bool:
    try:
        remote.append_stream([document([1])])
    except ResourceExhausted as error:
        return f"the server already reads {streams.MAX_STREAMS} streams, its limit; try again later or use" in str(
            error
        )
    return False


def test_streams_are_bounded(
    stub: draft_pb2_grpc.DraftServiceStub, remote: RemoteDatastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "FIRST_MESSAGE_SECONDS", HANG)
    hold = threading.Event()

    def silent() -> Iterator[draft_pb2.AppendRequest]:
        hold.wait(HANG)
        yield from ()

    held = []

    def full() -> bool:
        held.append(stub.AppendStream.future(silent(), timeout=HANG))
        return refused(remote)

    until(full)
    assert len(held) >= streams.MAX_STREAMS
    assert remote.append([1]).documents == 1
    for call in held:
        call.cancel()
    hold.set()
    monkeypatch.setattr(streams, "FIRST_MESSAGE_SECONDS", 0.05)
    stuck = threading.Event()

    def never() -> Iterator[draft_pb2.AppendRequest]:
        stuck.wait(HANG)
        yield from ()

    with pytest.raises(grpc.RpcError) as caught:
        stub.AppendStream(never(), timeout=HANG)
    stuck.set()
    assert caught.value.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.RESOURCE_EXHAUSTED)


def test_a_stream_may_fall_silent_after_its_first_message(
    stub: draft_pb2_grpc.DraftServiceStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STREAM_SECONDS", 0.05)
    stuck = threading.Event()

    def requests() -> Iterator[draft_pb2.AppendRequest]:
        yield APPEND(datastore="chat", tokens=bytes(4), lengths=np.array([1], "<u4").tobytes())
        stuck.wait(HANG)

    with pytest.raises(grpc.RpcError) as caught:
        stub.AppendStream(requests(), timeout=HANG)
    stuck.set()
    assert caught.value.code() is grpc.StatusCode.CANCELLED
