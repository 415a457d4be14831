"""What gRPC carries of an error."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from suffolk.datastore.errors import (
    ALL_ERRORS,
    DeadlineExceeded,
    Field,
    InvalidArgument,
    ResourceExhausted,
    SuffolkError,
    Unavailable,
)
from suffolk.serving.net.call_errors import abort_call, call_error
from tests.support.waiting import HANG

ERRORS = [kind("bad") for kind in ALL_ERRORS] + [
    InvalidArgument("line 3: ", Field("max_nodes"), " is 9; it must be 8"),
    InvalidArgument(Field("größe"), " is ü"),
    Unavailable("the server is stopping", change="none"),
    DeadlineExceeded("2 of 3 copies", change="unknown"),
    ResourceExhausted("full", change="none", retry_seconds=0.25),
]


class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Ends each call with the error of the number that it gets."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        def call(request: bytes, context: grpc.ServicerContext) -> bytes:
            if not request:
                context.abort(grpc.StatusCode.UNAVAILABLE, "of another server")
            abort_call(context, ERRORS[int(request)])

        return grpc.unary_unary_rpc_method_handler(call)


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    server = grpc.server(ThreadPoolExecutor(1), [Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened
    server.stop(None)


def received(channel: grpc.Channel, request: bytes) -> SuffolkError:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/x/Y")(request, timeout=HANG)
    return call_error(caught.value, "grpc://x", "draft service", "late")


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_arrive_with_their_data(channel: grpc.Channel, number: int) -> None:
    sent, found = ERRORS[number], received(channel, b"%d" % number)
    assert type(found) is type(sent)
    assert str(found) == f"grpc://x: {sent}"
    retry = 1.0 if isinstance(sent, Unavailable) else sent.retry_seconds
    assert (found.field, found.change, found.retry_seconds) == (sent.field, sent.change, retry)
    found.rename({"max_nodes": "--max-nodes"})
    assert ("--max-nodes" in str(found)) == (sent.field == "max_nodes")


def test_an_error_of_another_server_says_nothing_of_changes(channel: grpc.Channel) -> None:
    found = received(channel, b"")
    assert (type(found), found.change, found.field) == (Unavailable, "unknown", None)


def test_a_call_without_a_connection_changed_nothing() -> None:
    with grpc.insecure_channel("127.0.0.1:1") as nothing:
        found = received(nothing, b"")
    assert (type(found), found.change) == (Unavailable, "none")
    assert "nothing listens there" in str(found)
