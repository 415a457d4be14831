"""Callers of the draft service see the datastores of their tenants, and nothing of the others."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from suffolk.datastore.errors import NotFound, PermissionDenied, ResourceExhausted
from suffolk.serving.clients.remote_datastore import RemoteDatastore, connect
from suffolk.serving.net.access_file import add_token, remove_token
from suffolk.serving.net.identity import Role
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.net.tls import TlsFiles
from suffolk.serving.store.draft_service.server import DraftServer
from tests.support.brute_force import BruteForceRetriever
from tests.support.certificates import make_certificates, needs_openssl
from tests.support.draft_server import CONTEXTS, DOCUMENTS, VOCABULARY, check_health, serving
from tests.support.waiting import HANG

ROLES = {
    "acme-reader": {"acme": Role.READ},
    "acme-admin": {"acme": Role.ADMIN},
    "default-reader": {"default": Role.READ},
    "both": {"acme": Role.READ, "default": Role.READ},
    "operator": {"*": Role.READ},
}
SEES = {
    "acme-reader": ["acme/notes"],
    "acme-admin": ["acme/notes"],
    "default-reader": ["wiki"],
    "both": ["acme/notes", "wiki"],
    "operator": ["acme/notes", "wiki"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with access.toml, and with the token of each of ROLES in a file of its name."""
    folder = tmp_path_factory.mktemp("access")
    for name, roles in ROLES.items():
        (folder / name).write_text(add_token(folder / "access.toml", name, roles) + "\n")
    (folder / "unknown").write_text("suffolk_0123456789abcdef_" + "0" * 64)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[DraftServer]:
    stores = {name: BruteForceRetriever(DOCUMENTS, VOCABULARY) for name in ("wiki", "acme/notes")}
    with serving(stores, access=folder / "access.toml") as server:
        yield server


@contextmanager
def remote(server: DraftServer, name: str, token: Path) -> Iterator[RemoteDatastore]:
    store = connect(f"grpc://{server.listening[0]}/{name}?token_file={token}", HANG)
    yield store
    store.close()


def get(server: DraftServer, path: str, token: str = "", body: object = None) -> tuple[int, bytes]:
    assert server.http is not None
    connection = http.client.HTTPConnection(server.http.host, server.http.port, timeout=HANG)
    headers = {"Authorization": f"Bearer {token.strip()}"} if token else {}
    connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
    reply = connection.getresponse()
    found = reply.status, reply.read()
    connection.close()
    return found


@pytest.mark.parametrize("name", ROLES)
def test_each_caller_sees_the_datastores_of_its_tenants(name: str, server: DraftServer, folder: Path) -> None:
    token = (folder / name).read_text()
    assert sorted(json.loads(get(server, "/v1/info", token)[1])["datastores"]) == SEES[name]
    for store in ("wiki", "default/wiki", "acme/notes"):
        if store.removeprefix("default/") in SEES[name]:
            with remote(server, store, folder / name) as opened:
                assert opened.lookup(CONTEXTS[0]).count > 0
            status, _ = get(server, "/v1/lookup", token, {"contexts": [[1]], "datastore": store})
            assert status == 200
    if len(SEES[name]) == 1:
        with remote(server, "", folder / name) as opened:
            assert opened.name == SEES[name][0]


@pytest.mark.parametrize("name", ["acme-reader", "acme-admin", "default-reader"])
def test_a_datastore_of_another_tenant_answers_like_an_unknown_one(
    name: str, server: DraftServer, folder: Path
) -> None:
    token, [hidden] = (folder / name).read_text(), {"wiki", "acme/notes"} - set(SEES[name])
    calls = [
        ("/v1/lookup", {"contexts": [[1]]}),
        ("/v1/draft", {"contexts": [[1]]}),
        ("/v1/draft", {"text": "one", "texts": True}),
        ("/v1/occurrences", {"tokens": [1]}),
        ("/v1/occurrences", {"text": "one", "texts": True}),
        ("/v1/tokenizer", None),
    ]
    for path, body in calls:
        answers = []
        for store in (hidden, hidden[:-1] + "x"):
            sent = None if body is None else body | {"datastore": store}
            status, text = get(server, path if sent else f"{path}?datastore={store}", token, sent)
            answers.append((status, text.decode().replace(store, "STORE")))
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
    for store in (hidden, hidden[:-1] + "x"):
        with pytest.raises(NotFound, match=f"there is no '{store}'; this caller may read {SEES[name][0]}$"):
            connect(f"grpc://{server.listening[0]}/{store}?token_file={folder / name}", HANG)


@pytest.mark.parametrize(
    "path", ["/v1/info", "/v1/tokenizer", "/v1/lookup", "/v1/draft", "/v1/occurrences", "/metrics", "/nothing"]
)
def test_requests_without_a_known_token_are_refused(path: str, server: DraftServer, folder: Path) -> None:
    for token in ("", "x", (folder / "unknown").read_text()):
        assert get(server, path, token)[0] == 401
        assert get(server, path, token, {"contexts": [[1]]})[0] == 401
    assert all(get(server, path)[0] == 200 for path in ("/livez", "/readyz", "/healthz"))


def test_grpc_calls_without_a_known_token_are_refused(server: DraftServer, folder: Path) -> None:
    with pytest.raises(PermissionDenied, match="no token was sent; send 'Authorization: Bearer TOKEN'"):
        connect(f"grpc://{server.listening[0]}/wiki", HANG)
    with pytest.raises(PermissionDenied, match="the token is wrong or was removed"):
        connect(f"grpc://{server.listening[0]}/wiki?token_file={folder / 'unknown'}", HANG)
    assert check_health(server, "suffolk.v1.DraftService") == "SERVING"


def test_reflection_needs_a_token(server: DraftServer, folder: Path) -> None:
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        with pytest.raises(grpc.RpcError) as caught:
            next(stub.ServerReflectionInfo(iter([request]), timeout=HANG))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        metadata = [("authorization", f"Bearer {(folder / 'acme-reader').read_text().strip()}")]
        reply = next(stub.ServerReflectionInfo(iter([request]), timeout=HANG, metadata=metadata))
        assert reply.list_services_response.service


def test_metrics_need_a_role_in_every_tenant(server: DraftServer, folder: Path) -> None:
    for name in ROLES:
        status, text = get(server, "/metrics", (folder / name).read_text())
        assert status == (200 if name == "operator" else 403)
        assert (b"acme/notes" in text) == (name == "operator")


def test_a_removed_token_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(add_token(tmp_path / "access.toml", "alice", {"default": Role.READ}))
    stores = {"wiki": BruteForceRetriever(DOCUMENTS, VOCABULARY)}
    with serving(stores, access=tmp_path / "access.toml") as server, remote(server, "", tmp_path / "token") as opened:
        opened.info()
        remove_token(tmp_path / "access.toml", "alice")
        server.authenticator.reload()
        with pytest.raises(PermissionDenied):
            opened.info()


@needs_openssl
def test_a_certificate_is_an_identity(tmp_path: Path) -> None:
    folder, access = make_certificates(tmp_path), tmp_path / "access.toml"
    access.write_text('[[subject]]\nname = "client"\nroles = { acme = "read" }\n')
    stores = {name: BruteForceRetriever(DOCUMENTS, VOCABULARY) for name in ("wiki", "acme/notes")}
    tls = TlsFiles(f"{folder}/server.pem", f"{folder}/server.key", f"{folder}/ca.pem")
    with serving(stores, access=access, tls=tls, http=None) as server:
        for name, found in (("client", "acme/notes"), ("server", "")):
            files = f"ca={folder}/ca.pem&cert={folder}/{name}.pem&key={folder}/{name}.key"
            url = f"grpcs://{server.listening[0]}?{files}"
            if found:
                store = connect(url, HANG)
                assert store.name == found
                store.close()
            else:
                with pytest.raises(PermissionDenied, match="no token was sent"):
                    connect(url, HANG)


def test_a_quota_holds_one_tenant_and_no_other(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.write_text("[tenant.acme]\ncalls_per_second = 0.001\n\n[tenant.beta]\nqueries_per_second = 0.001\n")
    tokens = {name: add_token(access, name, {name: Role.READ}) for name in ("acme", "beta", "default")}
    tokens["operator"] = add_token(access, "operator", {"*": Role.READ})
    for name, token in tokens.items():
        (tmp_path / name).write_text(token)
    stores = {name: BruteForceRetriever(DOCUMENTS, VOCABULARY) for name in ("wiki", "acme/notes", "beta/notes")}
    with serving(stores, access=access) as server:
        with remote(server, "", tmp_path / "acme") as opened:  # its one call
            for _ in range(3):
                with pytest.raises(
                    ResourceExhausted, match="tenant acme: its quota calls_per_second is 0.001, and they"
                ):
                    opened.info()
        status, text = get(server, "/v1/info", tokens["acme"])
        assert (status, json.loads(text)["error"]["code"]) == (429, "RESOURCE_EXHAUSTED")
        with remote(server, "", tmp_path / "beta") as opened:
            opened.lookup_batch(CONTEXTS)
            with pytest.raises(ResourceExhausted, match="tenant beta: its quota queries_per_second is 0.001"):
                opened.lookup(CONTEXTS[0])
            assert get(server, "/v1/lookup", tokens["beta"], {"contexts": [[1]]})[0] == 429
        with remote(server, "", tmp_path / "default") as opened:
            for _ in range(20):
                opened.lookup(CONTEXTS[0])
        text = get(server, "/metrics", tokens["operator"])[1]
        assert b'suffolk_quota_refusals_total{quota="calls_per_second",tenant="acme"} 4.0' in text
        assert b'suffolk_quota_refusals_total{quota="queries_per_second",tenant="beta"} 2.0' in text
        assert b'suffolk_tenant_calls_in_flight{tenant="acme"} 0.0' in text


def test_a_refused_call_says_when_to_try_again(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.write_text("[tenant.acme]\nconcurrent_calls = 0\n")
    token = add_token(access, "acme", {"acme": Role.READ})
    with serving({"acme/notes": BruteForceRetriever(DOCUMENTS, VOCABULARY)}, access=access) as server:
        with grpc.insecure_channel(str(server.listening[0])) as channel:
            stub = draft_pb2_grpc.DraftServiceStub(channel)
            metadata = [("authorization", f"Bearer {token}")]
            with pytest.raises(grpc.RpcError) as caught:
                stub.GetInfo(draft_pb2.GetInfoRequest(), timeout=HANG, metadata=metadata)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"  # type: ignore[attr-defined]
