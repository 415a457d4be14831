"""A draft server and its client over real sockets: the same answers as in-process, and every bound with its text."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import suffolk
from datastore import Datastore
from datastore.errors import (
    ALL_ERRORS,
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    NotFound,
    ResourceExhausted,
    SuffolkError,
    Unavailable,
)
from serving.draft_service import limits
from serving.draft_service.client import DEFAULT_DEADLINE, INFO_DEADLINE, RemoteDatastore, connect
from serving.draft_service.fail_soft import FailSoft
from serving.draft_service.grpc_server import Servicer
from serving.draft_service.server import DraftServer
from serving.proto import draft_pb2, draft_pb2_grpc
from serving.transport.endpoint import Endpoint
from tests.brute_force import BruteForceRetriever, assert_same_tree
from tests.draft_server import LOOPBACK, PATIENT, connected, serving
from tests.stores import make_store

VOCABULARY = 40
RANDOM = np.random.default_rng(3)
DOCUMENTS = [[int(token) for token in RANDOM.zipf(1.4, 120).clip(1, VOCABULARY) - 1] for _ in range(6)]
CONTEXTS = [DOCUMENTS[place % 6][place : place + 1 + place % 30] for place in range(40)] + [[], [VOCABULARY - 1] * 9]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Datastore]:
    with make_store(tmp_path_factory.mktemp("s") / "s", [DOCUMENTS[:2], DOCUMENTS[2:]], vocab_size=VOCABULARY) as store:
        yield store


@pytest.fixture
def brute() -> Iterator[BruteForceRetriever]:
    retriever = BruteForceRetriever(DOCUMENTS, VOCABULARY)
    yield retriever
    retriever.gate.set()


@pytest.fixture
def server(brute: BruteForceRetriever) -> Iterator[DraftServer]:
    with serving({"wiki": brute}) as server:
        yield server


@pytest.fixture
def remote(server: DraftServer) -> Iterator[RemoteDatastore]:
    with connected(server) as remote:
        yield remote


@pytest.fixture
def stub(server: DraftServer) -> Iterator[draft_pb2_grpc.DraftServiceStub]:
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        yield draft_pb2_grpc.DraftServiceStub(channel)


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
        assert remote.deadline == PATIENT
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
        assert remote.draft_batch([]) == []
        assert remote.lookup_batch([]) == []
        facts = {key: fact for key, fact in local.info().items() if key != "path"}
        assert remote.info() == {**facts, "url": remote.url}
        remote.close()


def test_only_the_tail_of_a_context_travels(remote: RemoteDatastore, brute: BruteForceRetriever) -> None:
    long = np.tile(np.array(DOCUMENTS[0], np.int32), 10_000)  # 4.8 MB, beyond the limit of a message
    assert remote.lookup(long, 8) == brute.lookup(DOCUMENTS[0], 8)
    assert remote.lookup([VOCABULARY + 5, *DOCUMENTS[0]], 8) == brute.lookup(DOCUMENTS[0], 8)


def test_one_call_per_batch(remote: RemoteDatastore, server: DraftServer) -> None:
    remote.draft_batch(CONTEXTS)
    remote.lookup_batch(CONTEXTS)
    text = server.service.metrics.exposition().decode()
    assert 'suffolk_requests_total{code="OK",method="Draft",transport="grpc"} 1.0' in text
    assert 'suffolk_requests_total{code="OK",method="Lookup",transport="grpc"} 1.0' in text
    assert f'suffolk_batch_size_sum{{method="Draft"}} {len(CONTEXTS)}.0' in text


def test_unset_fields_mean_the_defaults(stub: draft_pb2_grpc.DraftServiceStub, brute: BruteForceRetriever) -> None:
    context = np.array(DOCUMENTS[1][:30], "<i4").tobytes()
    reply = stub.Draft(draft_pb2.DraftRequest(queries=[draft_pb2.DraftQuery(context=context)]), timeout=PATIENT)
    expected = brute.draft(DOCUMENTS[1][:30])
    assert np.frombuffer(reply.trees[0].tokens, "<i4").tolist() == expected.tokens.tolist()
    assert reply.trees[0].match_length == expected.match_length
    found = stub.Lookup(draft_pb2.LookupRequest(contexts=[context]), timeout=PATIENT).matches[0]
    assert (found.length, found.count) == brute.lookup(DOCUMENTS[1][:30])


DRAFT, QUERY, LOOKUP = draft_pb2.DraftRequest, draft_pb2.DraftQuery, draft_pb2.LookupRequest


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (DRAFT(max_match=0), "max_match is 0; it must be in 1..4096"),
        (DRAFT(max_match=4097), "max_match is 4097; it must be in 1..4096"),
        (DRAFT(min_match=0), "min_match is 0; it must be in 1..4096"),
        (DRAFT(max_match=2, min_match=3), "min_match is 3, above max_match, 2; lower min_match or raise max_match"),
        (DRAFT(max_depth=0), "max_depth is 0; it must be in 1..64"),
        (DRAFT(max_depth=65), "max_depth is 65; it must be in 1..64"),
        (DRAFT(queries=[QUERY()] * 257), "queries: the batch has 257; the limit is 256; split it into several calls"),
        (DRAFT(queries=[QUERY(), QUERY(max_nodes=1025)]), "queries[1].max_nodes is 1025; it must be in 0..1024"),
        (
            DRAFT(queries=[QUERY(max_nodes=1024)] * 129),
            "max_nodes add up to 132096; the limit is 131072; lower them or",
        ),
        (
            DRAFT(queries=[QUERY(context=bytes(4 * 4097))]),
            "queries[0].context has 4097 tokens; the limit is 4096; send only",
        ),
        (DRAFT(queries=[QUERY(context=b"abc")]), "queries[0].context has 3 bytes; it must be a multiple of 4, int32"),
        (DRAFT(datastore="x" * 129), "datastore: the name has 129 characters; the limit is 128; see GetInfo"),
        (DRAFT(max_match=16, max_depth=64), "max_match + max_depth is 80, above 64"),
        (LOOKUP(max_match=4097), "max_match is 4097; it must be in 1..4096"),
        (LOOKUP(contexts=[b""] * 257), "the batch has 257; the limit is 256"),
        (LOOKUP(contexts=[b"abcde"]), "contexts[0] has 5 bytes; it must be a multiple of 4"),
        (LOOKUP(contexts=[b"\xff\xff\xff\xff"]), "token id -1 is not in the vocabulary of 40"),
    ],
)
def test_limits(request_: DRAFT | LOOKUP, text: str, stub: draft_pb2_grpc.DraftServiceStub) -> None:
    method = stub.Draft if isinstance(request_, DRAFT) else stub.Lookup
    with pytest.raises(grpc.RpcError) as caught:
        method(request_, timeout=PATIENT)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in caught.value.details()


def test_limits_admit_what_is_within(stub: draft_pb2_grpc.DraftServiceStub, brute: BruteForceRetriever) -> None:
    brute.documents = [[1, 2, 3]]
    largest = QUERY(context=bytes(4 * limits.MAX_CONTEXT), max_nodes=limits.MAX_NODES)
    reply = stub.Draft(DRAFT(queries=[largest, *[QUERY(max_nodes=509)] * 255]), timeout=PATIENT)
    assert len(reply.trees) == limits.MAX_BATCH


def test_message_sizes_are_limited(stub: draft_pb2_grpc.DraftServiceStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Lookup(LOOKUP(contexts=[bytes(4096)] * 257), timeout=PATIENT)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max (1053" in caught.value.details()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda store: store.lookup([1], 0), "max_match is 0; it must be in 1..4096"),
        (lambda store: store.draft([1], max_match=-3), "max_match is -3"),
        (lambda store: store.draft([1], max_depth=99), "max_depth is 99; it must be in 1..64"),
        (lambda store: store.draft([1], max_nodes=-1), "queries[0].max_nodes is -1; it must be in 0..1024"),
        (lambda store: store.draft_batch([[1]], max_nodes=[1, 2]), "max_nodes has 2 entries for 1 contexts"),
        (lambda store: store.draft_batch([[1]] * 257), "the batch has 257; the limit is 256"),
        (lambda store: store.lookup([0.5]), "contexts[0] is a 1-dimensional array of float64"),
        (lambda store: store.lookup([VOCABULARY]), f"token id {VOCABULARY} is not in the vocabulary"),
    ],
)
def test_client_refuses_as_a_local_datastore_does(call: object, text: str, remote: RemoteDatastore) -> None:
    for _ in range(5):  # the caller's mistakes do not open the breaker
        with pytest.raises(InvalidArgument) as caught:
            call(remote)  # type: ignore[operator]
        assert text in str(caught.value)
    assert remote.lookup([1]).length == 1


@pytest.mark.parametrize("kind", ALL_ERRORS)
def test_every_error_arrives_as_itself(
    kind: type[SuffolkError], remote: RemoteDatastore, brute: BruteForceRetriever
) -> None:
    brute.fault = kind("segment 3: no good")
    with pytest.raises(SuffolkError) as caught:
        remote.draft([1])
    assert type(caught.value) is kind
    assert ("no answer within" if kind is DeadlineExceeded else "segment 3: no good") in str(caught.value)
    assert str(caught.value).startswith(remote.url)


def test_fault_in_the_server_is_internal_and_logged(
    remote: RemoteDatastore, brute: BruteForceRetriever, caplog: pytest.LogCaptureFixture
) -> None:
    brute.fault = ZeroDivisionError("seven")
    with pytest.raises(Internal, match="Draft: fault in the server: ZeroDivisionError: seven; see its log"):
        remote.draft([1])
    assert "Draft over grpc failed" in caplog.text


def test_names(brute: BruteForceRetriever) -> None:
    other = BruteForceRetriever([[5, 6]], 9)
    with serving({"wiki": brute, "code": other}) as server:
        with connected(server, "code") as store:
            assert store.lookup([5, 6]) == (2, 1)
        with pytest.raises(
            InvalidArgument, match="the server has several datastores; put one of code, wiki at the end"
        ):
            connect(f"grpc://{server.listening[0]}")
        with pytest.raises(NotFound, match="datastore: there is no 'news'; this server has code, wiki"):
            connect(f"grpc://{server.listening[0]}/news")
        stub = draft_pb2_grpc.DraftServiceStub(grpc.insecure_channel(str(server.listening[0])))
        with pytest.raises(grpc.RpcError) as caught:
            stub.Lookup(LOOKUP(), timeout=PATIENT)
        assert "no name was given and this server has several; choose one of code, wiki" in caught.value.details()


def test_too_much_at_once_is_refused(brute: BruteForceRetriever) -> None:
    with (
        serving({"wiki": brute}, max_concurrent=2) as server,
        connected(server) as remote,
        ThreadPoolExecutor(2) as pool,
    ):
        brute.gate.clear()
        held = [pool.submit(remote.draft, DOCUMENTS[0][:5]) for _ in range(2)]
        wait_until(lambda: server.service.admission.taken() == 2)
        with pytest.raises(
            ResourceExhausted, match="works on 2 requests, its limit; try again later or raise --max-concurrent"
        ):
            remote.draft([1])
        assert (
            'suffolk_refused_total{method="Draft",transport="grpc"} 1.0' in server.service.metrics.exposition().decode()
        )
        assert check_health(server, "") == "SERVING"
        brute.gate.set()
        assert [len(future.result()) for future in held] == [len(brute.draft(DOCUMENTS[0][:5]))] * 2
        assert len(remote.draft(DOCUMENTS[0][:5])) > 0


def test_late_work_is_dropped(brute: BruteForceRetriever) -> None:
    """On a loaded machine a call may be late before it has begun; then it is none of this test's and made again."""
    with serving({"wiki": brute}) as server, connected(server, deadline=0.2) as remote:
        brute.gate.clear()
        while not brute.entered.is_set():
            with pytest.raises(DeadlineExceeded, match="no answer within 200 ms, the deadline"):
                remote.lookup_batch([[1]] * 200)
            remote.breaker.succeeded()
        brute.gate.set()
        wait_until(lambda: server.service.admission.taken() == 0)
        assert set(brute.calls) == {32}  # of 200 queries: what had begun when the deadline passed
        wait_until(lambda: 'code="DEADLINE_EXCEEDED",method="Lookup"' in server.service.metrics.exposition().decode())


def test_every_call_of_the_client_has_a_deadline(brute: BruteForceRetriever, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, float | None] = {}
    answer = Servicer._answer

    def spy(self: Servicer, method: str, context: grpc.ServicerContext, work: object) -> object:
        seen[method] = context.time_remaining()
        return answer(self, method, context, work)  # type: ignore[arg-type]

    monkeypatch.setattr(Servicer, "_answer", spy)
    with serving({"wiki": brute}) as server, connected(server, deadline=PATIENT) as remote:
        remote.lookup([1])
        remote.draft([1])
    assert set(seen) == {method.name for method in draft_pb2.DESCRIPTOR.services_by_name["DraftService"].methods}
    for method, left in seen.items():
        assert left is not None
        assert left < (INFO_DEADLINE if method == "GetInfo" else PATIENT) + 1  # gRPC rounds long ones up


def test_deadlines_of_a_client(server: DraftServer) -> None:
    url = f"grpc://{server.listening[0]}"
    for store, expected in (
        (connect(url), DEFAULT_DEADLINE),
        (connect(f"{url}?deadline_ms=7"), 0.007),
        (connect(url, 3), 3),
    ):
        assert store.deadline == expected
        store.close()
    with pytest.raises(InvalidArgument, match="deadline is 0 s; it must be above 0 and at most 3600"):
        connect(url, 0)


def test_hung_service_costs_a_deadline_only_now_and_then(brute: BruteForceRetriever) -> None:
    with serving({"wiki": brute}) as server, connected(server, deadline=0.05) as remote:
        soft = FailSoft(remote)
        brute.gate.clear()
        for _ in range(50):
            assert len(soft.draft([1])) == 0
        missed = soft.missed()
        assert missed["DeadlineExceeded"] + missed["Unavailable"] == 50
        assert missed["DeadlineExceeded"] >= 3
        assert len(brute.calls) <= missed["DeadlineExceeded"] < 25  # the breaker kept the others at home
        with pytest.raises(Unavailable, match="the last calls failed, so the draft service is left alone"):
            remote.draft([1])
        assert remote.info()["generation"] == 7  # not held back
        brute.gate.set()
        remote.deadline = PATIENT
        wait_until(lambda: len(soft.draft([1])) > 0)
        assert not remote.breaker.is_open()


def test_closed_client(remote: RemoteDatastore) -> None:
    remote.close()
    with pytest.raises(Unavailable, match="this datastore was closed; open it again"):
        remote.lookup([1])
    remote.close()


def test_nobody_there(server: DraftServer) -> None:
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
    with serving({"wiki": brute}, grace=20.0) as server, connected(server) as remote, ThreadPoolExecutor(1) as pool:
        assert check_health(server, "") == check_health(server, "suffolk.v1.DraftService") == "SERVING"
        with grpc.insecure_channel(str(server.listening[0])) as channel:
            request = health_pb2.HealthCheckRequest(service="suffolk.v1.DraftService")
            watch = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=PATIENT)
            states = (health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status) for reply in watch)
            assert next(states) == "SERVING"
            brute.gate.clear()
            held = pool.submit(remote.draft, DOCUMENTS[0][:5])
            assert brute.entered.wait(PATIENT)
            stopper = threading.Thread(target=server.stop)
            stopper.start()
            assert next(states) == "NOT_SERVING"
        with pytest.raises(Unavailable):
            connect(remote.url)
        assert not held.done()
        brute.gate.set()
        stopper.join(PATIENT)
        assert_same_tree(held.result(), brute.draft(DOCUMENTS[0][:5]))


def test_two_threads_that_stop_at_once_both_return(brute: BruteForceRetriever) -> None:
    """The slower one found the HTTP server gone between two lines, and raised AttributeError."""
    for _ in range(5):
        with serving({"wiki": brute}) as server, ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(server.stop) for _ in range(4)]:
                done.result(PATIENT)


def test_grace_ends(brute: BruteForceRetriever) -> None:
    with serving({"wiki": brute}, grace=0.1) as server, connected(server) as remote, ThreadPoolExecutor(1) as pool:
        brute.gate.clear()
        held = pool.submit(remote.draft, [1])
        assert brute.entered.wait(PATIENT)
        server.stop()
        with pytest.raises(Unavailable):
            held.result(PATIENT)
        brute.gate.set()


def test_address_in_use(server: DraftServer, brute: BruteForceRetriever, tmp_path: Path) -> None:
    with pytest.raises(
        ResourceExhausted, match="--listen: 127.0.0.1:[0-9]+ is in use by another process; stop it or choose"
    ):
        serve_again(server, brute, "listen")
    with pytest.raises(
        ResourceExhausted, match="--http: 127.0.0.1:[0-9]+ is in use by another process; stop it or choose"
    ):
        serve_again(server, brute, "http")
    path = Endpoint(path=str(tmp_path / "s.sock"))
    with serving({"wiki": brute}, listen=(path, LOOPBACK)) as first:
        assert (tmp_path / "s.sock").stat().st_mode & 0o777 == 0o600
        assert str(first.listening[0]) == str(path)
        with (
            pytest.raises(ResourceExhausted, match=f"--listen: {path} is in use by another process"),
            serving({"wiki": brute}, listen=(path,)),
        ):
            pass
        remote = connect(f"grpc+unix://{path.path}", PATIENT)  # the first server still has its socket
        assert remote.lookup([1]).length == 1
        remote.close()


def serve_again(server: DraftServer, brute: BruteForceRetriever, field: str) -> None:
    taken = {"listen": {"listen": (LOOPBACK, *server.listening)}, "http": {"http": server.http}}[field]
    with serving({"wiki": brute}, **taken):
        pass


def check_health(server: DraftServer, service: str) -> str:
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service=service), timeout=PATIENT
        )
    return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)


def wait_until(condition: object, seconds: float = PATIENT) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.01)
