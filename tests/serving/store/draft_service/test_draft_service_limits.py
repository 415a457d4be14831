"""Tests the limits of the draft service and its client, with their messages."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from suffolk.datastore import limits
from suffolk.datastore.errors import (
    InvalidArgument,
    ResourceExhausted,
)
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.drafters.retrieval.limits import Limits
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.net.call_errors import sent_retry_seconds
from suffolk.serving.net.grpc_server import SPARE_THREADS
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.store.draft_service.server import DraftServer
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import DOCUMENTS, VOCABULARY, check_health, connected, serving
from tests.support.waiting import HANG, until

DRAFT, LOOKUP, CHOICE = draft_pb2.DraftRequest, draft_pb2.LookupRequest, draft_pb2.DatastoreChoice


def numbers(*values: int) -> bytes:
    return np.array(values, "<u4").tobytes()


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (DRAFT(max_match=0), "max_match is 0; it must be between 1 and 4096"),
        (DRAFT(max_match=4097), "max_match is 4097; it must be between 1 and 4096"),
        (DRAFT(min_match=0), "min_match is 0; it must be between 1 and 4096"),
        (DRAFT(max_match=2, min_match=3), "min_match is 3, above max_match, 2; lower min_match or raise max_match"),
        (DRAFT(max_depth=0), "max_depth is 0; it must be between 1 and 64"),
        (DRAFT(max_depth=65), "max_depth is 65; it must be between 1 and 64"),
        (
            DRAFT(lengths=bytes(4 * 257)),
            "contexts: the batch has 257 queries; the limit is 256; split it into several calls",
        ),
        (
            DRAFT(lengths=numbers(0, 0), max_nodes=numbers(64, 1025)),
            "max_nodes[1] is 1025; it must be between 0 and 1024",
        ),
        (DRAFT(lengths=numbers(0, 0), max_nodes=numbers(1, 1, 1)), "max_nodes has 3 entries for 2 contexts; give one"),
        (
            DRAFT(lengths=bytes(4 * 129), max_nodes=numbers(1024)),
            "max_nodes add up to 132096; the limit is 131072; lower them or",
        ),
        (
            DRAFT(contexts=bytes(4 * 4097), lengths=numbers(4097)),
            "contexts[0] has 4097 tokens; the limit is 4096; send only",
        ),
        (DRAFT(contexts=b"abc", lengths=numbers(1)), "contexts has 3 bytes; it must be a multiple of 4, little-endian"),
        (DRAFT(contexts=bytes(8), lengths=numbers(1)), "contexts has 2 entries; lengths add up to 1"),
        (DRAFT(lengths=b"abcde"), "lengths has 5 bytes; it must be a multiple of 4"),
        (
            DRAFT(datastores=[draft_pb2.DatastoreChoice(name="x" * 129)]),
            "datastore: the name has 129 characters; the limit is 128; see GetInfo",
        ),
        (DRAFT(datastores=[CHOICE(name="wiki", weight=0)]), "weight is 0; it must be between 1 and 16"),
        (DRAFT(datastores=[CHOICE(name="wiki"), CHOICE(name="wiki")]), "datastores: 'wiki' is named twice; name each"),
        (DRAFT(datastores=[CHOICE(name="wiki"), CHOICE()]), "datastores: a name is empty; name each datastore once"),
        (LOOKUP(datastores=[CHOICE(name=f"{n}") for n in range(17)]), "17 datastores; a query searches 1 to 16"),
        (DRAFT(max_match=16, max_depth=64), "max_match + max_depth is 80, above 64"),
        (LOOKUP(max_match=4097), "max_match is 4097; it must be between 1 and 4096"),
        (LOOKUP(lengths=bytes(4 * 257)), "the batch has 257 queries; the limit is 256"),
        (LOOKUP(contexts=b"abcde", lengths=numbers(1)), "contexts has 5 bytes; it must be a multiple of 4"),
        (LOOKUP(contexts=numbers(0xFFFFFFFF), lengths=numbers(1)), "token id -1 is not in the vocabulary of 40"),
    ],
)
def test_limits(request_: DRAFT | LOOKUP, text: str, stub: draft_pb2_grpc.DraftServiceStub) -> None:
    method = stub.Draft if isinstance(request_, DRAFT) else stub.Lookup
    with pytest.raises(grpc.RpcError) as caught:
        method(request_, timeout=HANG)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in caught.value.details()


@pytest.mark.parametrize("method", ["Draft", "Lookup", "GetInfo"])
def test_a_malformed_request_is_rejected(method: str, server: DraftServer, caplog: pytest.LogCaptureFixture) -> None:
    with grpc.insecure_channel(str(server.listening[0])) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(f"/suffolk.v1.DraftService/{method}")(b"\xff\xff no message", timeout=HANG)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "the request is not a message of this method" in caught.value.details()
    assert caplog.records == []


def test_health_watchers_hold_no_thread(brute: BruteForceRetriever) -> None:
    """Regression: each watcher used to hold a thread, so as many watchers as threads blocked the server."""
    with (
        serving({"wiki": brute}, max_concurrent=1) as server,
        connected(server) as remote,
        grpc.insecure_channel(str(server.listening[0])) as channel,
    ):
        health = health_pb2_grpc.HealthStub(channel)
        watches = [health.Watch(health_pb2.HealthCheckRequest(), timeout=HANG) for _ in range(SPARE_THREADS + 2)]
        for watch in watches:
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        assert len(remote.draft(DOCUMENTS[0][:5])) > 0
        server.mark_unready("a test")
        for watch in watches:
            assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watch.cancel()


def test_limits_admit_what_is_within(stub: draft_pb2_grpc.DraftServiceStub, brute: BruteForceRetriever) -> None:
    brute.documents = [[1, 2, 3]]
    lengths, sizes = numbers(limits.MAX_CONTEXT, *[0] * 255), numbers(limits.MAX_NODES, *[509] * 255)
    request = DRAFT(contexts=bytes(4 * limits.MAX_CONTEXT), lengths=lengths, max_nodes=sizes)
    assert len(stub.Draft(request, timeout=HANG).sizes) == 4 * limits.MAX_BATCH


def test_message_sizes_are_limited(stub: draft_pb2_grpc.DraftServiceStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Lookup(LOOKUP(contexts=bytes(4096 * 1025)), timeout=HANG)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max (4198" in caught.value.details()
    assert sent_retry_seconds(caught.value.trailing_metadata()) is None


def test_the_client_says_that_a_message_is_too_large(remote: RemoteDatastore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CONTEXT", 1 << 21)
    with pytest.raises(InvalidArgument, match="a message of this call is larger than .*; split the call into several"):
        remote.lookup([1] * (1 << 21), 1 << 21)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda store: store.lookup([1], 0), "max_match is 0; it must be between 1 and 4096"),
        (lambda store: store.draft([1], max_match=-3), "max_match is -3"),
        (lambda store: store.draft([1], max_depth=99), "max_depth is 99; it must be between 1 and 64"),
        (lambda store: store.draft([1], max_nodes=-1), "max_nodes[0] is -1; it must be between 0 and 1024"),
        (lambda store: store.draft_batch([[1]], max_nodes=[1, 2]), "max_nodes has 2 entries for 1 contexts"),
        (lambda store: store.draft_batch([[1]] * 257), "the batch has 257 queries; the limit is 256"),
        (lambda store: store.lookup([0.5]), "contexts[0] is a 1-dimensional array of float64"),
        (lambda store: store.lookup([VOCABULARY]), f"token id {VOCABULARY} is not in the vocabulary"),
    ],
)
def test_the_client_rejects_what_a_local_datastore_rejects(call: object, text: str, remote: RemoteDatastore) -> None:
    for _ in range(5):  # the caller's mistakes do not open the breaker
        with pytest.raises(InvalidArgument) as caught:
            call(remote)  # type: ignore[operator]
        assert text in str(caught.value)
    assert remote.lookup([1]).length == 1


def test_large_batches_are_split_into_several_calls() -> None:
    brute = BruteForceRetriever([each[:30] for each in DOCUMENTS], VOCABULARY)  # quick to search a thousand times
    with serving({"wiki": brute}, http=None) as server, connected(server) as remote:
        check_split(remote, brute)


def check_split(remote: RemoteDatastore, brute: BruteForceRetriever) -> None:
    limits_of_drafts = Limits(max_match=4, max_depth=2)
    drafter, local = (DatastoreDrafter(store, VOCABULARY, limits_of_drafts) for store in (remote, brute))
    for requests in (limits.MAX_BATCH + 3, 65):
        texts = [np.asarray(DOCUMENTS[number % 6][: 1 + number % 90], np.int32) for number in range(requests)]
        asked = [DraftRequest(number, text, 4) for number, text in enumerate(texts)]
        behind = [[np.asarray(text[-1:]), *[text[:1]] * 3] for text in texts]  # 260 for 65 requests
        for found, expected in (
            (drafter.draft(asked), local.draft(asked)),
            (drafter.draft_after(asked, behind), local.draft_after(asked, behind)),
        ):
            assert sum(len(tree) for trees in found for tree in trees) > requests
            for trees, others in zip(found, expected, strict=True):
                assert [tree.tokens.tolist() for tree in trees] == [tree.tokens.tolist() for tree in others]
    assert drafter.failures.by_reason.total() == 0


def test_calls_beyond_max_concurrent_are_rejected(brute: BruteForceRetriever) -> None:
    with (
        serving({"wiki": brute}, max_concurrent=2) as server,
        connected(server) as remote,
        ThreadPoolExecutor(2) as pool,
    ):
        brute.gate.clear()
        held = [pool.submit(remote.draft, DOCUMENTS[0][:5]) for _ in range(2)]
        until(lambda: server.service.admission.in_flight() == 2)
        with pytest.raises(
            ResourceExhausted, match="already has 2 calls, its limit; try again later or raise max_concurrent"
        ):
            remote.draft([1])
        assert (
            'suffolk_requests_rejected_total{method="Draft",tenant="",transport="grpc"} 1.0'
            in server.service.metrics.exposition().decode()
        )
        assert check_health(server, "") == "SERVING"
        brute.gate.set()
        assert [len(future.result()) for future in held] == [len(brute.draft(DOCUMENTS[0][:5]))] * 2
        assert len(remote.draft(DOCUMENTS[0][:5])) > 0
