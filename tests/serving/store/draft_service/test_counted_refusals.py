"""Requests that access control refuses are in the metrics, over gRPC and HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from suffolk.datastore.errors import PermissionDenied, ResourceExhausted
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.store.draft_service.server import DraftServer
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import VOCABULARY, serving
from tests.support.http_requests import ask
from tests.support.waiting import HANG

LOOKUP = {"contexts": [[1]]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with access.toml and a token of each name. The tenant full has no calls."""
    access = tmp_path / "access.toml"
    access.write_text("[tenant.full]\ncalls_per_second = 0\n")
    for name in ("default", "full"):
        (tmp_path / name).write_text(add_token(access, name, {name: Role.READ}) + "\n")
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[DraftServer]:
    with serving({"wiki": BruteForceRetriever([[1, 2]], VOCABULARY)}, access=folder / "access.toml") as server:
        yield server


def counts(server: DraftServer) -> dict[tuple[str, str, str, str], int]:
    """Number of calls by tenant, transport, method and code."""
    text = server.service.metrics.exposition().decode()
    found = re.findall(r'suffolk_requests_total{code="(.*)",method="(.*)",tenant="(.*)",transport="(.*)"} (\d+)', text)
    return {(tenant, transport, method, code): int(number) for code, method, tenant, transport, number in found}


def token(folder: Path, name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {(folder / name).read_text().strip()}"}


def test_http_refusals_are_counted(server: DraftServer, folder: Path) -> None:
    reader = token(folder, "default")
    for method, path, body, headers, status in (
        ("POST", "/v1/lookup", LOOKUP, {}, 401),
        ("POST", "/v1/lookup", LOOKUP, {"Authorization": "Bearer x"}, 401),
        ("GET", "/v1/some/path", None, {}, 401),
        ("POST", "/v1/lookup", LOOKUP, token(folder, "full"), 429),
        ("POST", "/v1/append", {"documents": []}, reader, 403),
        ("GET", "/metrics", None, reader, 403),
        ("POST", "/v1/lookup", LOOKUP, reader, 200),
    ):
        assert ask(server, method, path, body, headers)[0] == status
    assert counts(server) == {
        ("", "http", "Lookup", "UNAUTHENTICATED"): 2,
        ("", "http", "other", "UNAUTHENTICATED"): 1,
        ("full", "http", "Lookup", "RESOURCE_EXHAUSTED"): 1,
        ("default", "http", "Append", "PERMISSION_DENIED"): 1,
        ("default", "http", "metrics", "PERMISSION_DENIED"): 1,
        ("default", "http", "Lookup", "OK"): 1,
    }
    rejected = 'suffolk_requests_rejected_total{method="Lookup",tenant="full",transport="http"} 1.0'
    assert rejected in server.service.metrics.exposition().decode()


def test_grpc_refusals_are_counted(server: DraftServer, folder: Path) -> None:
    with pytest.raises(PermissionDenied):
        connect(f"grpc://{server.listening[0]}/wiki", HANG)
    with pytest.raises(ResourceExhausted) as refused:
        connect(f"grpc://{server.listening[0]}/wiki?token_file={folder / 'full'}", HANG)
    assert refused.value.retry_seconds == 60.0
    metadata = [(key.lower(), value) for key, value in token(folder, "default").items()]
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        stub = draft_pb2_grpc.DraftServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.AppendStream(iter([draft_pb2.AppendRequest()]), timeout=HANG, metadata=metadata)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert counts(server) == {
        ("", "grpc", "GetInfo", "UNAUTHENTICATED"): 1,
        ("full", "grpc", "GetInfo", "RESOURCE_EXHAUSTED"): 1,
        ("default", "grpc", "AppendStream", "PERMISSION_DENIED"): 1,
    }
