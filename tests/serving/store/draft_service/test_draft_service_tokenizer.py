"""A remote datastore takes texts in place of token ids, and answers as the local one."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

import suffolk
from suffolk.datastore import limits
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.errors import Internal, InvalidArgument, NotFound, ResourceExhausted, Unavailable
from suffolk.datastore.tokenizer import fingerprint, load_tokenizer, parse_tokenizer
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.net.identity import OPERATOR
from suffolk.serving.net.proto import draft_pb2
from suffolk.serving.store.draft_service import grpc_server
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.store.draft_service.service import DraftService
from tests.support.brute_force import assert_same_tree
from tests.support.building import tokenizer_json
from tests.support.callers import acting_as
from tests.support.draft_server import connected, serving
from tests.support.stores import make_store, make_word_store
from tests.support.waiting import HANG

TEXT = "sat on the"
IDS = [2, 3, 0]


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Datastore]:
    with open_datastore(make_word_store(tmp_path / "words")) as store:
        yield store


@pytest.fixture
def server(local: Datastore) -> Iterator[DraftServer]:
    with serving({"words": local}) as server:
        yield server


@pytest.fixture
def remote(server: DraftServer) -> Iterator[RemoteDatastore]:
    with connected(server) as remote:
        yield remote


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_texts_are_searched_as_their_ids(kind: str, local: Datastore, remote: RemoteDatastore) -> None:
    store: suffolk.Retriever = local if kind == "local" else remote
    assert store.encode(TEXT) == IDS
    assert store.decode(IDS) == TEXT
    assert store.lookup(TEXT) == store.lookup(IDS) == (3, 2)
    assert_same_tree(store.draft(TEXT, max_nodes=4), local.draft(IDS, max_nodes=4))
    assert len(store.draft(TEXT)) == 1
    with pytest.raises(InvalidArgument, match=r"ids\[1\] is 6; the vocabulary has 6 ids"):
        store.decode([0, 6])
    with pytest.raises(InvalidArgument, match="the text has a surrogate at 4; decode its bytes as UTF-8"):
        store.lookup("the \ud800")


def test_the_tokenizer_is_sent_once(server: DraftServer, remote: RemoteDatastore) -> None:
    for _ in range(3):
        remote.lookup(TEXT)
        remote.info()
    text = server.service.metrics.exposition().decode()
    assert 'suffolk_requests_total{code="OK",method="GetTokenizer",tenant="",transport="grpc"} 1.0' in text


def test_a_new_tokenizer_on_the_server_is_fetched_again(
    remote: RemoteDatastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remote.encode(TEXT) == IDS
    info = draft_pb2.DatastoreInfo(name="words", vocab_size=6, info_json='{"tokenizer": null}')
    monkeypatch.setattr(grpc_server, "_info_reply", lambda *_: draft_pb2.GetInfoReply(datastores=[info]))
    remote.info()
    with pytest.raises(NotFound, match="has no tokenizer"):
        remote.encode(TEXT)


def test_a_store_of_token_ids_refuses_texts(tmp_path: Path) -> None:
    with make_store(tmp_path / "ids", [[[1, 2, 3]]], vocab_size=6) as local, serving({"ids": local}) as server:
        with connected(server) as remote:
            for store in (local, remote):
                for use in (store.lookup, store.draft, store.encode):
                    with pytest.raises(
                        NotFound, match="ids was built from token ids and has no tokenizer; pass token ids"
                    ):
                        use("text")
                with pytest.raises(NotFound, match="has no tokenizer; pass token ids"):
                    store.decode([1])
                assert store.lookup([1, 2]) == (2, 1)
        message = "ids was built from token ids and has no tokenizer; pass token ids"
        with acting_as(OPERATOR), pytest.raises(NotFound, match=message):
            server.service.tokenizer("")


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (b"no frame", "tokenizer: .*"),
        (zstandard.compress(b"{}"), r"tokenizer: not a tokenizer.json \(.*\)"),
        (zstandard.compress(b"x" * 100)[:-4], "tokenizer: .*"),
        (
            zstandard.ZstdCompressor(write_content_size=False).compress(b"{}"),
            "tokenizer: its frame states no size up to 134217728 bytes",
        ),
    ],
)
def test_a_damaged_tokenizer_is_refused(
    frame: bytes, message: str, remote: RemoteDatastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DraftService, "tokenizer", lambda *_: frame)
    with pytest.raises(Internal, match=f"{remote.url}: the draft service sent a malformed reply: {message}"):
        remote.encode(TEXT)
    assert remote.lookup(IDS) == (3, 2)


def test_the_tokenizer_of_another_datastore_is_refused(
    remote: RemoteDatastore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer_json())
    other = load_tokenizer(tmp_path / "tokenizer.json")
    monkeypatch.setattr(Datastore, "tokenizer", lambda _: other)
    with pytest.raises(
        Internal, match="tokenizer: its fingerprint is [0-9a-f]{64}, not [0-9a-f]{64} as in the datastore"
    ):
        remote.encode(TEXT)


def test_a_tokenizer_too_large_to_send_is_refused_by_the_server(
    remote: RemoteDatastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MAX_TOKENIZER_BYTES", 100)
    with pytest.raises(
        ResourceExhausted, match="the limits are 100 and .*; load it from its own file and pass token ids"
    ):
        remote.encode(TEXT)


def test_opening_takes_a_deadline_and_a_context(server: DraftServer, tmp_path: Path) -> None:
    url = f"grpc://{server.listening[0]}/words"
    with suffolk.open(url, deadline=30) as store:
        assert isinstance(store, suffolk.RemoteDatastore)
        assert (store.deadline, store.lookup(TEXT)) == (30, (3, 2))
    with pytest.raises(Unavailable, match="this datastore was closed; open it again"):
        store.lookup(IDS)
    with pytest.raises(InvalidArgument, match="deadline is 30 for .*words; only a service has one, leave it out"):
        suffolk.open(tmp_path / "words", deadline=30)


@pytest.mark.parametrize("query", ["", "?datastore=words"])
def test_http_returns_the_same_tokenizer(query: str, server: DraftServer, local: Datastore) -> None:
    with urllib.request.urlopen(f"http://{server.http}/v1/tokenizer{query}", timeout=HANG) as reply:
        assert reply.headers["content-type"] == "application/json"
        tokenizer = reply.read()
    assert fingerprint(parse_tokenizer(tokenizer)) == fingerprint(local.tokenizer())
