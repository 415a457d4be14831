"""Appends, deletions, flushes and counts through a draft service are those of the live store itself."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import suffolk
from suffolk.datastore import limits
from suffolk.datastore.appendable import Appendable
from suffolk.datastore.documents import Document
from suffolk.datastore.errors import (
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    SuffolkError,
    Unavailable,
    Unsupported,
)
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.store.live_store.store import LiveStore
from tests.support.brute_force import assert_same_tree
from tests.support.draft_server import VOCABULARY, connected, serving
from tests.support.http_requests import ask
from tests.support.stores import make_store
from tests.support.waiting import HANG

APPEND = draft_pb2.AppendRequest


def document(tokens: list[int], source: str | None = None, **metadata: Any) -> Document:
    return Document(source, metadata, np.asarray(tokens, np.uint32))


def test_a_url_has_the_methods_of_a_path(remote: RemoteDatastore, store: LiveStore) -> None:
    assert isinstance(remote, Appendable)
    assert isinstance(store, Appendable)
    assert remote.has_groups
    first = remote.append([1, 2, 3], id="a", metadata={"license": "mit", "stars": 3}, group="g")
    assert (first.documents, first.tokens, first.replaced) == (1, 3, 0)
    second = remote.append_batch([document([1, 2, 4], "b"), document([1, 2, 4, 5])], [None, "g"])
    assert (second.sequence, second.documents, second.tokens) == (first.sequence + 1, 2, 7)
    for arguments in ({}, {"group": "g"}, {"group": "g", "scope": "group"}, {"group": "h", "scope": "group"}):
        assert_same_tree(remote.draft_batch([[1, 2]], **arguments)[0], store.draft_batch([[1, 2]], **arguments)[0])
        assert remote.lookup_batch([[1, 2]], **arguments) == store.lookup_batch([[1, 2]], **arguments)
    several = [[1, 2], [1, 2]]
    found = remote.draft_batch(several, group=["g", None])
    for actual, expected in zip(found, store.draft_batch(several, group=["g", None]), strict=True):
        assert_same_tree(actual, expected)
    assert [each.source for each in store.documents()] == ["a", "b", None]
    assert next(iter(store.documents())).metadata == {"license": "mit", "stars": 3}
    keyed = [remote.append([8, 8], id="keyed", key="once").sequence for _ in range(2)]
    assert keyed[0] == keyed[1]
    assert remote.get("keyed") == store.get("keyed")
    assert remote.get("keyed").documents == 1
    with pytest.raises(NotFound, match="has no document with the id 'none'"):
        remote.get("none")
    assert remote.stats() == store.stats()
    assert remote.group_stats("g") == store.group_stats("g")
    replaced = remote.append([1, 9], group="g", replace=True)
    assert replaced.replaced == 2
    assert remote.draft_batch([[1]], group="g", scope="group")[0].tokens.tolist() == [9]
    deleted = remote.delete(ids=["b", "c"])
    assert (deleted.documents, deleted.unknown_ids) == (1, ("c",))
    assert remote.delete(group="g").documents == 1
    assert remote.lookup([1, 2]).length == 0


def test_a_flush_publishes(remote: RemoteDatastore, store: LiveStore) -> None:
    assert remote.flush() is None
    remote.append([1, 2, 3])
    assert remote.flush() == store.generation == 1
    assert remote.draft([1]).tokens.tolist() == [2, 3]
    assert remote.info()["generation"] == 1
    assert remote.info()["live"]["documents"] == 0


def test_a_datastore_has_one_flush_or_deletion_at_a_time(
    server: DraftServer, remote: RemoteDatastore, store: LiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: deletions that waited for a long flush filled all places of the server."""
    remote.append([1, 2, 3], id="a")
    remote.append([1, 2, 3], group="g")
    entered, finish, flush = threading.Event(), threading.Event(), store.flush

    def slow() -> int | None:
        entered.set()
        finish.wait(HANG)
        return flush()

    monkeypatch.setattr(store, "flush", slow)
    with ThreadPoolExecutor(1) as pool:
        flushing = pool.submit(remote.flush)
        assert entered.wait(HANG)
        for call in (lambda: remote.delete(["a"]), remote.flush):
            with pytest.raises(ResourceExhausted, match="chat: another flush or deletion runs; try again when it has"):
                call()
        status, headers, _ = ask(server, "POST", "/v1/flush", {"datastore": "chat"})
        assert (status, headers["retry-after"]) == (429, "1")
        assert server.service.admission.in_flight() == 1
        assert remote.delete(group="g").documents == 1  # waits for no flush
        finish.set()
        assert flushing.result(HANG) == 1
    assert remote.delete(["a"]).documents == 1


def test_http_twins(server: DraftServer, store: LiveStore) -> None:
    body = {
        "datastore": "chat",
        "documents": [{"tokens": [1, 2, 3], "id": "a", "metadata": {"stars": 3}}, {"tokens": [1, 2], "group": "h"}],
        "group": "g",
    }
    status, _, reply = ask(server, "POST", "/v1/append", body)
    assert (status, reply["documents"], reply["tokens"]) == (200, 2, 5)
    assert store.group_stats("g").documents == store.group_stats("h").documents == 1
    query = {"datastore": "chat", "contexts": [[1, 2], [1]], "group": ["g", None]}
    assert [each["tokens"] for each in ask(server, "POST", "/v1/draft", query)[2]["trees"]] == [[3], [2, 3]]
    assert ask(server, "GET", "/v1/stats?datastore=chat")[2]["documents"] == 2
    assert ask(server, "GET", "/v1/stats?datastore=chat&group=g")[2] == {"documents": 1, "tokens": 3}
    assert ask(server, "POST", "/v1/delete", {"datastore": "chat", "group": "g"})[2]["documents"] == 1
    assert ask(server, "POST", "/v1/delete", {"datastore": "chat", "ids": ["zz"]})[2]["unknown_ids"] == ["zz"]
    ask(server, "POST", "/v1/append", {"datastore": "chat", "documents": [{"tokens": [5]}]})
    assert ask(server, "POST", "/v1/flush", {"datastore": "chat"})[2] == {"generation": 1}


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("append", {"documents": [{"tokens": [1]}]}, 400, "no name was given and there are several"),
        ("append", {"datastore": "maps", "documents": [{"tokens": [1]}]}, 404, "there is no 'maps'"),
        ("append", {"datastore": "team/ids", "documents": [{"tokens": [1]}]}, 501, "takes no documents; serve it with"),
        ("append", {"datastore": "chat"}, 400, "documents: field required"),
        ("append", {"datastore": "chat", "documents": []}, 400, "no documents"),
        ("append", {"datastore": "chat", "documents": [{}]}, 400, "documents[0]: give either tokens or text"),
        ("append", {"datastore": "chat", "documents": [{"tokens": []}]}, 400, "document 0 has 0 tokens"),
        ("append", {"datastore": "chat", "documents": [{"tokens": [40]}]}, 400, "document 0 has token id 40"),
        ("append", {"datastore": "chat", "documents": [{"tokens": [-1]}]}, 400, "document 0 has token id -1"),
        ("append", {"datastore": "chat", "documents": [{"text": "a"}]}, 404, "has no tokenizer; pass token ids"),
        (
            "append",
            {"datastore": "chat", "documents": [{"tokens": [1], "group": "x" * 300}]},
            400,
            "group is a text of 300",
        ),
        ("append", {"datastore": "chat", "documents": [{"tokens": [1]}], "replace": True}, 400, "replace"),
        ("append", {"datastore": "chat", "documents": [{"tokens": [1], "metadata": {"a": [1]}}]}, 400, "metadata"),
        ("delete", {"datastore": "chat"}, 400, "neither ids nor conditions are given"),
        ("delete", {"datastore": "chat", "where": ["a"]}, 400, "condition 'a': not of the form"),
        ("delete", {"datastore": "chat", "group": "g"}, 404, "group"),
        ("delete", {"datastore": "chat", "group": "g", "ids": ["a"]}, 400, "group is given with ids or where"),
        ("flush", {"datastore": "team/ids"}, 501, "takes no documents"),
        ("flush", {"store": "chat"}, 400, "store: unknown key (did you mean datastore?); the keys are datastore"),
        (
            "draft",
            {"datastore": "team/ids", "contexts": [[1]], "group": "g"},
            501,
            "has no groups, only live ones have",
        ),
        (
            "draft",
            {"datastore": "chat", "contexts": [[1]], "group": "g", "scope": "all"},
            400,
            "scope is 'all'; it must be",
        ),
        (
            "draft",
            {"datastore": "chat", "contexts": [[1]], "group": ["g", "h"]},
            400,
            "groups has 2 entries for 1 contexts",
        ),
    ],
)
def test_bad_input_gets_one_error(path: str, body: dict[str, Any], status: int, text: str, server: DraftServer) -> None:
    found, _, reply = ask(server, "POST", f"/v1/{path}", body)
    assert (found, text in reply["error"]["message"]) == (status, True), reply


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (APPEND(tokens=b"abc", lengths=bytes(4)), "tokens has 3 bytes; it must be a multiple of 4"),
        (APPEND(tokens=bytes(4), lengths=bytes(4)), "tokens has 1 entries; lengths add up to 0"),
        (APPEND(lengths=bytes(4 * (limits.MAX_DOCUMENTS + 1))), "65537 documents; the limit is 65536"),
        (APPEND(lengths=bytes(8), ids=["a"]), "ids has 1 entries for 2 documents; give one for each, or none"),
        (APPEND(lengths=bytes(8), groups=["a"] * 3), "groups has 3 entries for 2 documents; give one, or one for each"),
        (APPEND(lengths=bytes(4), metadata=["[1]"]), "metadata[0] is '[1]'; it must be a JSON object"),
        (APPEND(lengths=bytes(4), metadata=["[" * 100_000]), "it must be a JSON object"),
    ],
)
def test_malformed_columns(request_: draft_pb2.AppendRequest, text: str, stub: draft_pb2_grpc.DraftServiceStub) -> None:
    request_.datastore = "chat"
    for call in (
        lambda: stub.Append(request_, timeout=HANG),
        lambda: stub.AppendStream(iter([request_]), timeout=HANG),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert text in caught.value.details()


@pytest.mark.parametrize("method", ["Append", "Delete", "Flush", "Stats"])
def test_a_malformed_message_is_rejected(method: str, server: DraftServer) -> None:
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"/suffolk.v1.DraftService/{method}")(b"\xff\xff no message", timeout=HANG)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        with pytest.raises(grpc.RpcError) as caught:
            channel.stream_unary("/suffolk.v1.DraftService/AppendStream")(iter([b"\xff\xff"]), timeout=HANG)
        assert "the request is not a message of this method" in caught.value.details()


def test_the_client_checks_before_it_sends(remote: RemoteDatastore, server: DraftServer) -> None:
    with pytest.raises(InvalidArgument, match="4194304 bytes in one call|bytes in one call; the limit is"):
        remote.append_batch([document([1] * 600_000), document([1] * 600_000)])
    with pytest.raises(InvalidArgument, match="metadata cannot be sent"):
        remote.append([1], metadata={"a": object()})  # type: ignore[dict-item]
    with pytest.raises(InvalidArgument, match="scope is 'all'"):
        remote.draft_batch([[1]], group="g", scope="all")
    with connected(server, "chat,team/ids") as both:
        assert both.has_groups
        with pytest.raises(InvalidArgument, match="are searched as one; to append, open one of them"):
            both.append([1])
    with connected(server, "team/ids") as ids, pytest.raises(Unsupported, match="team/ids takes no documents"):
        ids.append([1])
    remote.close()
    for call in (lambda: remote.append([1]), remote.flush, remote.stats):
        with pytest.raises(Unavailable):
            call()


@pytest.mark.parametrize("kind", [ResourceExhausted, Unavailable, NotFound])
def test_errors_arrive_as_themselves(
    kind: type[SuffolkError], remote: RemoteDatastore, store: LiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise kind("the disk is full; free some space")

    monkeypatch.setattr(store, "append_batch", fail)
    with pytest.raises(kind, match="the disk is full; free some space"):
        remote.append([1])
    with pytest.raises(kind, match="message 0 of the stream: the disk is full"):
        remote.append_stream([document([1])])
    assert remote.lookup([1]).length == 0  # reads go on


def test_open_gives_a_writable_store(server: DraftServer) -> None:
    with suffolk.open(f"grpc://{server.listening[0]}/chat?deadline_ms=60000") as store:
        assert isinstance(store, RemoteDatastore)
        store.append([7, 8, 9])
        assert store.draft([7]).tokens.tolist() == [8, 9]


def test_a_live_datastore_is_searched_with_others(store: LiveStore, tmp_path: Path) -> None:
    with (
        make_store(tmp_path / "code", [[[1, 2, 3], [1, 2, 3]]], vocab_size=VOCABULARY) as code,
        serving({"chat": store, "code": code}) as server,
        connected(server, "code,chat:3") as both,
    ):
        assert both.has_groups
        store.append([1, 2, 4], group="g")
        tree = both.draft([1, 2])
        assert (tree.tokens.tolist(), tree.counts.tolist()) == ([4, 3], [3, 2])  # type: ignore[union-attr]
        assert both.draft_batch([[1, 2]], group="g", scope="group")[0].tokens.tolist() == [4]


def test_info_over_http_describes_a_live_datastore(server: DraftServer, store: LiveStore) -> None:
    store.append([1, 2, 3])
    status, _, info = ask(server, "GET", "/v1/info")
    assert status == 200
    assert info["datastores"]["chat"]["live"]["tokens"] == 3


def test_a_group_alone_is_never_widened_to_the_store(remote: RemoteDatastore, server: DraftServer) -> None:
    remote.append([1, 2, 3], group="a")
    for group in (None, [None]):
        with pytest.raises(InvalidArgument, match="scope is 'group', and a context has no group"):
            remote.draft_batch([[1, 2]], group=group, scope="group")
    body = {"contexts": [[1, 2]], "datastore": "chat"}
    assert ask(server, "POST", "/v1/draft", body | {"scope": "group"})[0] == 400
    assert ask(server, "POST", "/v1/draft", body | {"scope": "bad"})[0] == 400


def test_ids_are_a_list(remote: RemoteDatastore, store: LiveStore) -> None:
    for each in (remote, store):
        with pytest.raises(
            InvalidArgument, match=r"ids is the text 'ann/1'; give a list of texts, such as \['ann/1'\]"
        ):
            each.delete(ids="ann/1")
