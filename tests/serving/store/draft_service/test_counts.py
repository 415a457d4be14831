"""Counts of continuations, and drafts of frequent nodes alone."""

from __future__ import annotations

import tracemalloc
from typing import Any

import grpc
import numpy as np
import pytest

from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.errors import DeadlineExceeded, InvalidArgument
from suffolk.datastore.tree_paths import Paths, tree_paths
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.net.identity import OPERATOR
from suffolk.serving.net.messages.columns import pack_paths, pack_sizes
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.store.draft_service.service import DraftService
from tests.support import oracle
from tests.support.brute_force import BruteForceRetriever
from tests.support.callers import acting_as
from tests.support.draft_server import CONTEXTS, DOCUMENTS, VOCABULARY
from tests.support.http_requests import ask
from tests.support.waiting import HANG

PATTERNS = [CONTEXTS[9][:2], CONTEXTS[3][:1]]


def test_counts_are_those_of_whole_patterns(remote: RemoteDatastore) -> None:
    drafts = remote.draft_batch([pattern[-1:] for pattern in PATTERNS])
    trees = [Paths(tree.tokens, tree.parents) for tree in drafts]
    counts = remote.start_counts(PATTERNS, trees, HANG).result()
    for pattern, tree, found in zip(PATTERNS, drafts, counts, strict=True):
        texts = [[*pattern, *path] for path in tree_paths(tree)]
        assert found.tolist() == [len(oracle.occurrences(DOCUMENTS, text)) for text in texts]
        assert len(found)


def test_drafts_leave_rare_nodes_out(remote: RemoteDatastore) -> None:
    whole = remote.draft_batch(PATTERNS, 1)
    least = [3, 5]
    found = remote.find_drafts(ContextQuery(PATTERNS, 1, least_counts=least))
    for tree, every, count in zip(found, whole, least, strict=True):
        assert tree.counts is not None
        assert every.counts is not None
        assert tree.counts.tolist() == [each for each in every.counts.tolist() if each >= count]
        assert len(tree)


def test_http_counts_too(http_server: DraftServer) -> None:
    body = {"contexts": [[1], [2]], "trees": [{"tokens": [1, 2], "parents": [-1, 0]}, {"tokens": [], "parents": []}]}
    expected = [len(oracle.occurrences(DOCUMENTS, text)) for text in ([1, 1], [1, 1, 2])]
    assert ask(http_server, "POST", "/v1/count", body)[::2] == (200, {"counts": [expected, []]})
    body["trees"][0]["parents"] = [-1]  # type: ignore[index]
    status, _, reply = ask(http_server, "POST", "/v1/count", body)
    assert (status, "tokens and parents differ in length" in reply["error"]["message"]) == (400, True)
    draft = {"contexts": [PATTERNS[0]], "max_match": 1, "least_counts": [4]}
    assert min(ask(http_server, "POST", "/v1/draft", draft)[2]["trees"][0]["counts"]) >= 4


def paths(tokens: list[int], parents: list[int]) -> dict[str, Any]:
    return pack_paths([Paths(np.array(tokens, np.int32), np.array(parents, np.int32))])


def count_request(**fields: Any) -> draft_pb2.CountRequest:
    return draft_pb2.CountRequest(contexts=np.array([1], "<i4").tobytes(), lengths=pack_sizes([1]), **fields)


def test_a_deep_tree_needs_little_memory() -> None:
    service = DraftService({"code": BruteForceRetriever(DOCUMENTS, VOCABULARY)}, 1)
    trees = [Paths(np.ones(4096, np.int32), np.arange(-1, 4095, dtype=np.int32))]  # their paths take 64 MiB
    tracemalloc.start()
    try:
        with acting_as(OPERATOR), pytest.raises(InvalidArgument, match="max_depth is 4096"):
            service.count([], [[1]], trees, lambda: False)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_the_deadline_is_checked_within_a_tree() -> None:
    checks = iter([False, False, True])
    service = DraftService({"code": BruteForceRetriever(DOCUMENTS, VOCABULARY)}, 1)
    with acting_as(OPERATOR), pytest.raises(DeadlineExceeded, match="before all counts were known"):
        service.count([], [[1]], [Paths(np.ones(600, np.int32), np.full(600, -1, np.int32))], lambda: next(checks))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (paths([1, 2], [1, -1]), "parents: a node of tree 0 precedes its parent; put parents first"),
        (paths([1], [-2]), "parents: a node of tree 0 precedes its parent"),
        (paths([1] * 65, [*range(-1, 64)]), "max_depth is 65; it must be between 1 and 64"),
        (paths([1] * 65_537, [-1] * 65_537), "tokens: the trees has 65537 nodes; the limit is 65536; split it"),
        ({**paths([1], [-1]), "sizes": pack_sizes([1, 0])}, "sizes: 2 trees for 1 contexts; give one for each context"),
        ({**paths([1], [-1]), "sizes": pack_sizes([2])}, "tokens has 1 entries"),
        (paths([99], [-1]), "token id 99 is not in the vocabulary"),
    ],
)
def test_malformed_counts(stub: draft_pb2_grpc.DraftServiceStub, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Count(count_request(**fields), timeout=HANG)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in caught.value.details()


def test_malformed_least_counts(stub: draft_pb2_grpc.DraftServiceStub) -> None:
    request = draft_pb2.DraftRequest(lengths=pack_sizes([0]), least_counts=b"12345678" * 2)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Draft(request, timeout=HANG)
    assert "least_counts has 2 entries for 1 contexts; give one each, or none" in caught.value.details()
