"""Tests clients that stop reading."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest

from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.net.proto import decode_pb2, decode_pb2_grpc
from suffolk.serving.worker.server import WorkerServer
from suffolk.serving.worker.settings import pack_settings
from tests.support.waiting import until
from tests.support.worker_server import calling, page, talking_target, working

SETTINGS = SamplingSettings(max_new_tokens=600, logprobs=20, ignore_eos=True)
"""More replies than the transport buffers."""


@contextmanager
def unread(server: WorkerServer) -> Iterator[grpc.Call]:
    """A stream of a client with small buffers that is not read."""
    options = (("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0))
    with grpc.insecure_channel(str(server.listening[0]), options) as channel:
        request = decode_pb2.GenerateRequest(text="abc", sampling=pack_settings(SETTINGS), drafter="none")
        yield decode_pb2_grpc.DecodeServiceStub(channel).Generate(request)


def test_a_slow_client_holds_no_slot_and_loses_no_reply() -> None:
    with working(talking_target(), slots=1, queue=1) as server, unread(server) as stream, calling(server) as client:
        engine = server.service.engine
        until(lambda: engine.stats()["finished"] == {"length": 1})
        assert engine.stats()["running"] == 0
        assert server.in_flight() == 1  # the remaining replies still wait
        assert len(list(client.generate("abc", SamplingSettings(max_new_tokens=3)))) == 3  # in the only slot
        assert sum(len(reply.tokens) // 4 for reply in stream) == 600
        until(lambda: server.in_flight() == 0)


def test_a_client_that_stops_reading_is_cancelled() -> None:
    """Regression: a few clients that stopped reading used to block an idle worker forever."""
    with working(talking_target(), slots=1, queue=0, slow_client_seconds=0.2) as server, unread(server) as stream:
        until(lambda: server.service.engine.stats()["requests"] == 1 and server.in_flight() == 0)
        with pytest.raises(grpc.RpcError) as caught:
            list(stream)
        assert caught.value.code() is grpc.StatusCode.CANCELLED
        assert (
            'suffolk_requests_total{code="CANCELLED",method="Generate",tenant="",transport="grpc"} 1.0'
            in page(server, "/metrics")[1]
        )
        with calling(server) as client:
            assert len(list(client.generate("abc", SamplingSettings(max_new_tokens=3)))) == 3
