"""A draft service with more calls than it can answer refuses the others at once, and says when to try again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import grpc
import pytest

from suffolk.datastore.errors import ResourceExhausted
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.net.admission import RETRY_SECONDS
from suffolk.serving.net.call_errors import sent_retry_seconds
from suffolk.serving.net.grpc_server import SHORT_THREADS
from suffolk.serving.net.proto import draft_pb2
from suffolk.serving.store.draft_service.server import DraftServer
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import check_health, serving
from tests.support.waiting import HANG, until

LIMIT = SHORT_THREADS + 3
LOOKUP = draft_pb2.LookupRequest(contexts=b"\1\0\0\0", lengths=b"\1\0\0\0").SerializeToString()


@dataclass
class Caller:
    """Sends calls on one connection, which the server receives in order."""

    channel: grpc.Channel

    def send(self, method: str, data: bytes = LOOKUP, timeout: float = HANG) -> grpc.Future[bytes]:
        return self.channel.unary_unary(f"/suffolk.v1.DraftService/{method}").future(data, timeout=timeout)

    def refused(self, method: str, data: bytes = LOOKUP, timeout: float = HANG) -> grpc.RpcError:
        with pytest.raises(grpc.RpcError) as caught:
            self.send(method, data, timeout).result()
        return caught.value


@pytest.fixture
def server(brute: BruteForceRetriever) -> Iterator[DraftServer]:
    with serving({"wiki": brute}, max_concurrent=LIMIT) as server:
        yield server


@pytest.fixture
def caller(server: DraftServer) -> Iterator[Caller]:
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        yield Caller(channel)


@pytest.fixture
def full(caller: Caller, brute: BruteForceRetriever, remote: RemoteDatastore) -> Iterator[None]:
    """All threads for drafts run, and their queue is full."""
    brute.gate.clear()
    held = [caller.send("Lookup") for _ in range(LIMIT)]
    until(lambda: len(brute.calls) == SHORT_THREADS)
    yield
    assert len(brute.calls) == SHORT_THREADS
    brute.gate.set()
    assert all(future.result() for future in held)
    assert remote.lookup([1]).length == 1


@pytest.mark.usefixtures("full")
def test_calls_beyond_threads_and_queue_are_refused_before_they_are_read(
    server: DraftServer, caller: Caller, remote: RemoteDatastore
) -> None:
    error = caller.refused("Draft", b"\xff no message")
    text = f"the server already has {LIMIT} calls, its limit; try again later or raise max_concurrent"
    assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, text)
    assert sent_retry_seconds(error.trailing_metadata()) == pytest.approx(RETRY_SECONDS, abs=0.1)
    with pytest.raises(ResourceExhausted, match=text) as caught:
        remote.draft([1])
    assert caught.value.retry_seconds == pytest.approx(RETRY_SECONDS, abs=0.1)
    counted = 'suffolk_requests_rejected_total{method="Draft",tenant="",transport="grpc"} 2.0'
    assert counted in server.service.metrics.exposition().decode()


@pytest.mark.usefixtures("full")
def test_other_methods_and_health_checks_go_on(server: DraftServer, caller: Caller, remote: RemoteDatastore) -> None:
    assert check_health(server, "") == "SERVING"
    assert remote.info()["tokens"] > 0
    assert caller.refused("Nothing").code() is grpc.StatusCode.UNIMPLEMENTED
    assert "Nothing" not in server.service.metrics.exposition().decode()


def test_a_call_that_was_given_up_while_it_waited_is_not_computed(
    caller: Caller, brute: BruteForceRetriever, remote: RemoteDatastore
) -> None:
    brute.gate.clear()
    held = [caller.send("Lookup") for _ in range(SHORT_THREADS)]
    until(lambda: len(brute.calls) == SHORT_THREADS)  # all threads are taken
    assert caller.refused("Lookup", timeout=0.1).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    brute.gate.set()
    assert all(future.result() for future in held)
    assert remote.lookup([1]).length == 1
    assert len(brute.calls) == SHORT_THREADS + 1
