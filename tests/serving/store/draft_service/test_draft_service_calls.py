"""A draft server and its client over real sockets give the answers and errors of the local datastore."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest

import suffolk
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.errors import (
    ALL_ERRORS,
    Internal,
    InvalidArgument,
    NotFound,
    SuffolkError,
    Unavailable,
)
from suffolk.serving.clients.remote_datastore import RemoteDatastore, connect
from suffolk.serving.net.endpoint import Endpoint
from suffolk.serving.net.messages import columns
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.store.draft_service.server import DraftServer
from tests.support.brute_force import BruteForceRetriever, assert_same_tree
from tests.support.draft_server import CONTEXTS, DOCUMENTS, LOOPBACK, VOCABULARY, connected, serving
from tests.support.stores import make_store
from tests.support.waiting import HANG


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Datastore]:
    with make_store(tmp_path_factory.mktemp("s") / "s", [DOCUMENTS[:2], DOCUMENTS[2:]], vocab_size=VOCABULARY) as store:
        yield store


@pytest.mark.parametrize("transport", ["tcp", "unix"])
@pytest.mark.parametrize("kind", ["disk", "brute force"])
def test_remote_answers_as_local(transport: str, kind: str, store: Datastore, tmp_path: Path) -> None:
    local = store if kind == "disk" else BruteForceRetriever(DOCUMENTS, VOCABULARY)
    endpoint = LOOPBACK if transport == "tcp" else Endpoint(path=str(tmp_path / "s.sock"))
    with serving({"wiki": local}, listen=(endpoint,)) as server:
        url = f"grpc://{server.listening[0]}/wiki" if transport == "tcp" else f"grpc+unix://{endpoint.path}#wiki"
        remote = suffolk.open(
            f"{url}?deadline_ms=60000" if transport == "tcp" else url.replace("#", "?deadline_ms=60000#")
        )
        assert isinstance(remote, RemoteDatastore)
        assert remote.deadline == HANG
        for settings in ((16, 1), (3, 2), (1, 1)):
            assert remote.lookup_batch(CONTEXTS, *settings) == local.lookup_batch(CONTEXTS, *settings)
        budgets = [place * 3 % 70 for place in range(len(CONTEXTS))]
        for nodes in (64, 1, budgets):
            ours, theirs = remote.draft_batch(CONTEXTS, 8, 1, 6, nodes), local.draft_batch(CONTEXTS, 8, 1, 6, nodes)
            for actual, expected in zip(ours, theirs, strict=True):
                assert_same_tree(actual, expected)
        tokens = np.array(CONTEXTS[7], np.int32)
        assert remote.lookup(tokens) == local.lookup(tokens)
        assert_same_tree(remote.draft(tokens), local.draft(tokens))
        assert (remote.name, remote.vocab_size) == ("wiki", local.vocab_size)
        assert remote.draft_batch([]) == []
        assert remote.lookup_batch([]) == []
        facts = {key: fact for key, fact in local.info().items() if key != "path"}
        assert remote.info() == {**facts, "url": remote.url, "role": "admin"}
        remote.close()


def test_only_the_tail_of_a_context_travels(remote: RemoteDatastore, brute: BruteForceRetriever) -> None:
    long = np.tile(np.array(DOCUMENTS[0], np.int32), 10_000)  # 4.8 MB, beyond the limit of a message
    assert remote.lookup(long, 8) == brute.lookup(DOCUMENTS[0], 8)
    assert remote.lookup([VOCABULARY + 5, *DOCUMENTS[0]], 8) == brute.lookup(DOCUMENTS[0], 8)


def test_one_call_per_batch(remote: RemoteDatastore, server: DraftServer) -> None:
    remote.draft_batch(CONTEXTS)
    remote.lookup_batch(CONTEXTS)
    text = server.service.metrics.exposition().decode()
    assert 'suffolk_requests_total{code="OK",method="Draft",tenant="",transport="grpc"} 1.0' in text
    assert 'suffolk_requests_total{code="OK",method="Lookup",tenant="",transport="grpc"} 1.0' in text
    assert f'suffolk_batch_size_sum{{method="Draft"}} {len(CONTEXTS)}.0' in text


def test_unset_fields_mean_the_defaults(stub: draft_pb2_grpc.DraftServiceStub, brute: BruteForceRetriever) -> None:
    packed = columns.pack_contexts([DOCUMENTS[1][:30]], 30)
    reply = stub.Draft(draft_pb2.DraftRequest(**packed), timeout=HANG)
    [tree] = columns.unpack_trees(reply, [64], 16, VOCABULARY)
    assert_same_tree(tree, brute.draft(DOCUMENTS[1][:30]))
    found = stub.Lookup(draft_pb2.LookupRequest(**packed), timeout=HANG)
    assert columns.unpack_matches(found, 1, 16) == [brute.lookup(DOCUMENTS[1][:30])]


@pytest.mark.parametrize("kind", ALL_ERRORS)
def test_every_error_arrives_as_itself(
    kind: type[SuffolkError], remote: RemoteDatastore, brute: BruteForceRetriever
) -> None:
    brute.fault = kind("segment 3: no good")
    with pytest.raises(SuffolkError) as caught:
        remote.draft([1])
    assert type(caught.value) is kind
    assert str(caught.value) == f"{remote.url}: segment 3: no good"


def test_fault_in_the_server_is_internal_and_logged(
    remote: RemoteDatastore, brute: BruteForceRetriever, caplog: pytest.LogCaptureFixture
) -> None:
    brute.fault = ZeroDivisionError("seven")
    with pytest.raises(Internal, match=r"Draft: fault in the server \(ZeroDivisionError\); its log says more"):
        remote.draft([1])
    assert "Draft over grpc failed" in caplog.text
    assert "seven" in caplog.text


def test_names(brute: BruteForceRetriever) -> None:
    other = BruteForceRetriever([[5, 6]], 9)
    with serving({"wiki": brute, "code": other}) as server:
        with connected(server, "code") as store:
            assert store.lookup([5, 6]) == (2, 1)
        with pytest.raises(
            InvalidArgument, match="the server has several datastores; put one of code, wiki at the end"
        ):
            connect(f"grpc://{server.listening[0]}")
        with pytest.raises(NotFound, match="datastore: there is no 'news'; this caller may read code, wiki"):
            connect(f"grpc://{server.listening[0]}/news")
        stub = draft_pb2_grpc.DraftServiceStub(grpc.insecure_channel(str(server.listening[0])))
        with pytest.raises(grpc.RpcError) as caught:
            stub.Lookup(draft_pb2.LookupRequest(), timeout=HANG)
        assert "no name was given and there are several; choose one of code, wiki" in caught.value.details()


def test_closed_client(remote: RemoteDatastore) -> None:
    remote.close()
    with pytest.raises(Unavailable, match="this datastore was closed; open it again"):
        remote.lookup([1])
    remote.close()


def test_no_server_at_the_address(server: DraftServer) -> None:
    url = f"grpc://{server.listening[0]}/wiki"
    server.stop()
    with pytest.raises(Unavailable, match="nothing listens there; start the draft service"):
        connect(url)


def test_many_threads_share_a_client(store: Datastore) -> None:
    with serving({"wiki": store}) as server, connected(server) as remote, ThreadPoolExecutor(8) as pool:
        expected = store.draft_batch(CONTEXTS, 8)
        for trees in pool.map(lambda _: remote.draft_batch(CONTEXTS, 8), range(64)):
            for actual, wanted in zip(trees, expected, strict=True):
                assert_same_tree(actual, wanted)
