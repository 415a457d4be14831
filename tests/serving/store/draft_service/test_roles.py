"""Every call of the draft service with every role: what a caller may do, and that nothing of another tenant shows."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message import Message

from suffolk.datastore.documents import Document
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from suffolk.serving.net.messages.documents import pack_documents
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.store.draft_service import streams
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.store.live_store.store import LiveStore, create_live_store
from tests.serving.store.draft_service.test_draft_service_access import get
from tests.support.draft_server import VOCABULARY, serving
from tests.support.waiting import HANG, until

SECRET = "acme/plans"
STORES = ("chat", SECRET)
ROLES: dict[str, dict[str, Role]] = {
    **{f"default-{role}": {"default": role} for role in Role},
    **{f"acme-{role}": {"acme": role} for role in Role},
    "operator": {"*": Role.ADMIN},
    "both": {"default": Role.READ, "acme": Role.ADMIN},
}
NEEDED = {
    "Draft": Role.READ,
    "Lookup": Role.READ,
    "Count": Role.READ,
    "Occurrences": Role.READ,
    "Stats": Role.READ,
    "GetInfo": Role.READ,
    "GetTokenizer": Role.READ,
    "Append": Role.APPEND,
    "AppendStream": Role.APPEND,
    "Get": Role.APPEND,
    "Delete": Role.ADMIN,
    "Flush": Role.ADMIN,
}
"""The role that each call needs. A call that is not here fails the test."""


def document() -> Document:
    return Document(None, {}, np.array([1, 2, 3], np.uint32))


def append(name: str) -> draft_pb2.AppendRequest:
    request = pack_documents([document()], (), False)
    request.datastore = name
    return request


REQUESTS: dict[str, Callable[[str], Any]] = {
    "Draft": lambda name: draft_pb2.DraftRequest(datastores=[draft_pb2.DatastoreChoice(name=name)]),
    "Lookup": lambda name: draft_pb2.LookupRequest(datastores=[draft_pb2.DatastoreChoice(name=name)]),
    "Count": lambda name: draft_pb2.CountRequest(datastores=[draft_pb2.DatastoreChoice(name=name)]),
    "Occurrences": lambda name: draft_pb2.OccurrencesRequest(
        datastores=[draft_pb2.DatastoreChoice(name=name)], pattern=np.array([1], "<i4").tobytes()
    ),
    "Stats": lambda name: draft_pb2.StatsRequest(datastore=name),
    "GetInfo": lambda name: draft_pb2.GetInfoRequest(datastores=[name]),
    "GetTokenizer": lambda name: draft_pb2.GetTokenizerRequest(datastore=name),
    "Append": append,
    "AppendStream": lambda name: iter([append(name)]),
    "Get": lambda name: draft_pb2.GetRequest(datastore=name, id="kept"),
    "Delete": lambda name: draft_pb2.DeleteRequest(datastore=name, ids=["none"]),
    "Flush": lambda name: draft_pb2.FlushRequest(datastore=name),
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LiveStore]]:
    folder = tmp_path_factory.mktemp("live")
    found = {name: create_live_store(folder / name.replace("/", "-"), vocab_size=VOCABULARY) for name in STORES}
    for store in found.values():
        store.append([1, 2, 3], id="kept")
    yield found
    for store in found.values():
        store.close()


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    file = tmp_path_factory.mktemp("access") / "access.toml"
    return {"": str(file), **{name: add_token(file, name, roles) for name, roles in ROLES.items()}}


@pytest.fixture(scope="module")
def server(stores: dict[str, LiveStore], tokens: dict[str, str]) -> Iterator[DraftServer]:
    with serving(stores, access=Path(tokens[""])) as server:
        yield server


@pytest.fixture(scope="module")
def stub(server: DraftServer) -> Iterator[draft_pb2_grpc.DraftServiceStub]:
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        yield draft_pb2_grpc.DraftServiceStub(channel)


def call(stub: draft_pb2_grpc.DraftServiceStub, method: str, request: Any, token: str) -> tuple[str, str]:
    """Name of the status code, and everything that the answer shows as text."""
    metadata = [("authorization", f"Bearer {token}")]
    try:
        reply: Message = getattr(stub, method)(request, timeout=HANG, metadata=metadata)
    except grpc.RpcError as error:
        return error.code().name, f"{error.details()} {error.trailing_metadata()}"  # type: ignore[attr-defined]
    return "OK", str(reply)


def test_every_call_is_covered() -> None:
    methods = [each.name for each in draft_pb2.DESCRIPTOR.services_by_name["DraftService"].methods]
    assert sorted(methods) == sorted(NEEDED) == sorted(REQUESTS)


@pytest.mark.parametrize("name", ROLES)
@pytest.mark.parametrize("method", NEEDED)
def test_every_call_with_every_role(
    method: str, name: str, stub: draft_pb2_grpc.DraftServiceStub, tokens: dict[str, str]
) -> None:
    for store, tenant in (("chat", "default"), (SECRET, "acme")):
        role = max(ROLES[name].get(tenant, 0), ROLES[name].get("*", 0))
        code, text = call(stub, method, REQUESTS[method](store), tokens[name])
        if method == "AppendStream" and max(ROLES[name].values()) < Role.APPEND:  # refused before a name is read
            assert code == "PERMISSION_DENIED"
            assert f"{name} has the role append in no tenant" in text
        elif role == 0:
            unknown = call(stub, method, REQUESTS[method](store[:-1] + "x"), tokens[name])
            assert (code, text) == (unknown[0], unknown[1].replace(store[:-1] + "x", store))
            assert code == "NOT_FOUND"
        elif role < NEEDED[method]:
            assert code == "PERMISSION_DENIED"
            assert f"lacks the role {NEEDED[method]} in tenant {tenant}" in text
        else:
            assert code in ("OK", "NOT_FOUND" if method == "GetTokenizer" else "OK")
            assert "there is no" not in text


@pytest.mark.parametrize("name", [name for name in ROLES if name.startswith("default")])
def test_nothing_of_another_tenant_shows(
    name: str, server: DraftServer, stub: draft_pb2_grpc.DraftServiceStub, tokens: dict[str, str]
) -> None:
    def everything() -> list[Any]:
        found: list[Any] = [call(stub, method, REQUESTS[method](""), tokens[name]) for method in READING]
        found += [call(stub, method, REQUESTS[method]("unknown"), tokens[name]) for method in REQUESTS]
        found += [get(server, path, tokens[name]) for path in ("/v1/info", "/v1/stats", "/metrics", "/version")]
        return found

    before = everything()
    assert not any(part in str(before) for part in ("acme", "plans"))
    operator = tokens["operator"]
    assert call(stub, "Append", append(SECRET), operator)[0] == "OK"
    assert call(stub, "Flush", draft_pb2.FlushRequest(datastore=SECRET), operator)[0] == "OK"
    assert str(everything()) == str(before)


READING = [method for method, role in NEEDED.items() if role == Role.READ]


def test_stored_tokens_are_within_the_quota(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.write_text("[tenant.acme]\nstored_tokens = 10\n")
    token = add_token(access, "acme", {"acme": Role.ADMIN})
    with (
        create_live_store(tmp_path / "a", vocab_size=VOCABULARY) as one,
        create_live_store(tmp_path / "b", vocab_size=VOCABULARY) as other,
        create_live_store(tmp_path / "c", vocab_size=VOCABULARY) as free,
        serving({"acme/a": one, "acme/b": other, "chat": free}, access=access) as server,
        grpc.insecure_channel(str(server.listening[0])) as channel,
    ):
        stub = draft_pb2_grpc.DraftServiceStub(channel)
        answers = [call(stub, "Append", append(name), token) for name in ("acme/a", "acme/b", "acme/a", "acme/b")]
        assert [code for code, _ in answers] == ["OK"] * 3 + ["RESOURCE_EXHAUSTED"]
        assert "tenant acme: its quota stored_tokens is 10, and 9 tokens are stored" in answers[-1][1]
        assert "key='grpc-retry-pushback-ms', value='60000'" in answers[-1][1]
        code, text = call(stub, "AppendStream", iter([append("acme/a")]), token)
        assert "key='grpc-retry-pushback-ms', value='60000'" in text
        assert (code, "message 0 of the stream: tenant acme" in text) == ("RESOURCE_EXHAUSTED", True)
        body = {"documents": [{"tokens": [1, 2]}], "datastore": "acme/a"}
        status, reply = get(server, "/v1/append", token, body)
        assert (status, json.loads(reply)["error"]["code"]) == (429, "RESOURCE_EXHAUSTED")
        one.flush()
        assert call(stub, "Append", append("acme/a"), token)[0] == "RESOURCE_EXHAUSTED"  # published tokens count too


def test_streams_of_one_tenant_leave_places_for_others(
    stub: draft_pb2_grpc.DraftServiceStub, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "FIRST_MESSAGE_SECONDS", HANG)
    hold = threading.Event()

    def silent() -> Iterator[draft_pb2.AppendRequest]:
        hold.wait(HANG)
        yield from ()

    def open_stream(token: str) -> grpc.Future:
        return stub.AppendStream.future(silent(), timeout=HANG, metadata=[("authorization", f"Bearer {token}")])

    for held in [open_stream(tokens["acme-read"]) for _ in range(streams.MAX_STREAMS)]:
        assert held.exception(HANG).code() is grpc.StatusCode.PERMISSION_DENIED  # before it sends anything
    text = f"already reads {streams.MAX_TENANT_STREAMS} streams of tenant acme, its limit"
    several = []

    def full() -> bool:
        several.append(open_stream(tokens["acme-append"]))
        return text in call(stub, "AppendStream", iter([append(SECRET)]), tokens["acme-append"])[1]

    until(full)
    assert len(several) >= streams.MAX_TENANT_STREAMS
    assert call(stub, "AppendStream", iter([append("chat")]), tokens["default-append"])[0] == "OK"
    for held in several:
        held.cancel()
    hold.set()
    until(lambda: call(stub, "AppendStream", iter([append(SECRET)]), tokens["acme-append"])[0] == "OK")


def test_a_replacement_needs_room_for_its_growth_only(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.write_text("[tenant.acme]\nstored_tokens = 4\n")
    token = add_token(access, "acme", {"acme": Role.ADMIN})
    with (
        create_live_store(tmp_path / "a", vocab_size=VOCABULARY) as store,
        serving({"acme/a": store}, access=access) as server,
    ):
        body = {"documents": [{"tokens": [1, 2, 3]}], "group": "g"}
        for status, more in (
            (200, {}),
            (429, {"documents": [{"tokens": [1, 2]}]}),
            (200, {"replace": True}),
            (200, {"replace": True, "documents": [{"tokens": [1, 2, 3, 4]}]}),
            (429, {"replace": True, "documents": [{"tokens": [1, 2, 3, 4, 5]}]}),
            (429, {"replace": True, "group": "h"}),
            (200, {"replace": True}),
        ):
            assert get(server, "/v1/append", token, body | more)[0] == status


def test_bodies_of_readers_are_not_parsed(server: DraftServer, tokens: dict[str, str]) -> None:
    broken = {"documents": 3}
    assert get(server, "/v1/append", tokens["acme-read"], broken)[0] == 403
    assert get(server, "/v1/append", tokens["acme-append"], broken)[0] == 400
