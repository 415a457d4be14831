"""Tests a draft server: reflection, health, graceful stop, and addresses in use."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from suffolk.datastore.errors import (
    ResourceExhausted,
    Unavailable,
)
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.net.endpoint import Endpoint
from suffolk.serving.store.draft_service.server import DraftServer
from tests.support.brute_force import BruteForceRetriever, assert_same_tree
from tests.support.draft_server import DOCUMENTS, LOOPBACK, check_health, connected, serving
from tests.support.waiting import HANG, until


def test_reflection_names_the_services(server: DraftServer) -> None:
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        assert set(database.get_services()) == {
            "suffolk.v1.DraftService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }
        assert database.FindFileContainingSymbol("suffolk.v1.DraftRequest").package == "suffolk.v1"


def test_health_and_graceful_stop(brute: BruteForceRetriever) -> None:
    """The health changes to NOT_SERVING before the port closes."""
    with serving({"wiki": brute}, grace=HANG) as server, connected(server) as remote, ThreadPoolExecutor(1) as pool:
        assert check_health(server, "") == check_health(server, "suffolk.v1.DraftService") == "SERVING"
        with grpc.insecure_channel(str(server.listening[0])) as channel:
            request = health_pb2.HealthCheckRequest(service="suffolk.v1.DraftService")
            watch = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=HANG)
            states = (health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status) for reply in watch)
            assert next(states) == "SERVING"
            brute.gate.clear()
            held = pool.submit(remote.draft, DOCUMENTS[0][:5])
            assert brute.entered.wait(HANG)
            stopper = threading.Thread(target=server.stop)
            stopper.start()
            assert next(states) == "NOT_SERVING"
        until(lambda: is_unavailable(remote.url))
        assert not held.done()
        brute.gate.set()
        stopper.join(HANG)
        assert_same_tree(held.result(), brute.draft(DOCUMENTS[0][:5]))


def is_unavailable(url: str) -> bool:
    try:
        connect(url).close()
    except Unavailable:
        return True
    return False


def test_two_threads_that_stop_at_once_both_return(brute: BruteForceRetriever) -> None:
    """Regression: the slower thread used to raise AttributeError, because the HTTP server was gone."""
    for _ in range(5):
        with serving({"wiki": brute}) as server, ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(server.stop) for _ in range(4)]:
                done.result(HANG)


def test_grace_ends(brute: BruteForceRetriever) -> None:
    with serving({"wiki": brute}, grace=0.1) as server, connected(server) as remote, ThreadPoolExecutor(1) as pool:
        brute.gate.clear()
        held = pool.submit(remote.draft, [1])
        assert brute.entered.wait(HANG)
        server.stop()
        with pytest.raises(Unavailable):
            held.result(HANG)
        brute.gate.set()


def test_address_in_use(http_server: DraftServer, brute: BruteForceRetriever, tmp_path: Path) -> None:
    with pytest.raises(
        ResourceExhausted, match="--listen: 127.0.0.1:[0-9]+ is in use by another process; stop it or choose"
    ):
        serve_again(http_server, brute, "listen")
    with pytest.raises(
        ResourceExhausted, match="--http: 127.0.0.1:[0-9]+ is in use by another process; stop it or choose"
    ):
        serve_again(http_server, brute, "http")
    path = Endpoint(path=str(tmp_path / "s.sock"))
    with serving({"wiki": brute}, listen=(path, LOOPBACK)) as first:
        assert (tmp_path / "s.sock").stat().st_mode & 0o777 == 0o600
        assert str(first.listening[0]) == str(path)
        with (
            pytest.raises(ResourceExhausted, match=f"--listen: {path} is in use by another process"),
            serving({"wiki": brute}, listen=(path,)),
        ):
            pass
        remote = connect(f"grpc+unix://{path.path}", HANG)  # the first server still has its socket
        assert remote.lookup([1]).length == 1
        remote.close()


def serve_again(server: DraftServer, brute: BruteForceRetriever, field: str) -> None:
    taken = {"listen": {"listen": (LOOPBACK, *server.listening)}, "http": {"http": server.http}}[field]
    with serving({"wiki": brute}, **taken):
        pass
