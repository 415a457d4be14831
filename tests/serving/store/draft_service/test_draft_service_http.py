"""HTTP/JSON gives the answers of gRPC, with the same limits. Also tests status codes, metrics and health."""

from __future__ import annotations

import http.client
import json
import re
import socket
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from suffolk.datastore import limits
from suffolk.datastore.errors import ALL_ERRORS, SuffolkError, Unavailable
from suffolk.serving.net.call_errors import STATUS_CODES
from suffolk.serving.net.http_server import SPARE_CONNECTIONS, HttpLimits, LimitedProtocol
from suffolk.serving.store.draft_service import http_app
from suffolk.serving.store.draft_service.server import DraftServer
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import serving
from tests.support.http_requests import ask
from tests.support.waiting import HANG, until

DOCUMENTS = [[1, 2, 3, 4, 1, 2, 5], [2, 3, 4, 9]]


@pytest.fixture
def brute() -> Iterator[BruteForceRetriever]:
    retriever = BruteForceRetriever(DOCUMENTS, 40)
    yield retriever
    retriever.gate.set()


@pytest.fixture
def server(brute: BruteForceRetriever) -> Iterator[DraftServer]:
    with serving({"wiki": brute}, max_concurrent=2, grace=0.2) as server:
        yield server


@pytest.fixture(scope="module")
def shared_server() -> Iterator[DraftServer]:
    """For the many tests that leave nothing behind: a server takes 0.2 s to stop."""
    with serving({"wiki": BruteForceRetriever(DOCUMENTS, 40)}, grace=0.2) as server:
        yield server


def test_draft_and_lookup(server: DraftServer, brute: BruteForceRetriever) -> None:
    contexts = [[7, 1, 2], [], [3, 4]]
    status, _, reply = ask(server, "POST", "/v1/draft", {"contexts": contexts, "max_depth": 3, "max_nodes": [2, 5, 9]})
    assert status == 200
    for tree, expected in zip(reply["trees"], brute.draft_batch(contexts, 16, 1, 3, [2, 5, 9]), strict=True):
        assert tree == {
            "tokens": expected.tokens.tolist(),
            "parents": expected.parents.tolist(),
            "scores": pytest.approx(expected.scores.tolist(), abs=1e-6),
            "counts": expected.counts.tolist() if expected.counts is not None else None,
            "match_length": expected.match_length,
            "match_count": expected.match_count,
        }
    status, _, reply = ask(server, "POST", "/v1/lookup", {"contexts": contexts, "datastore": "wiki", "max_match": 1})
    assert (status, reply) == (
        200,
        {"matches": [{"length": 1, "count": 3}, {"length": 0, "count": 0}, {"length": 1, "count": 2}]},
    )
    assert ask(server, "POST", "/v1/draft", {"contexts": []})[2] == {"trees": []}


def test_info_leaves_out_paths_of_the_server(server: DraftServer) -> None:
    status, _, reply = ask(server, "GET", "/v1/info")
    assert status == 200
    assert reply["datastores"]["wiki"]["tokens"] == 11
    assert "secret" not in json.dumps(reply)


def test_a_datastore_of_token_ids_has_no_tokenizer(server: DraftServer) -> None:
    status, _, reply = ask(server, "GET", "/v1/tokenizer")
    assert (status, reply["error"]["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "body: not JSON"),
        (b"\xff", "body: not JSON"),
        (b"[" * 100_000, "body: not JSON"),
        (b"[1]", "body is [1]; it must be an object"),
        ({}, "contexts: give either contexts or text"),
        ({"contexts": [], "text": ""}, "contexts: give either contexts or text"),
        ({"contexts": [1]}, "contexts[0] is 1; it must be an array"),
        ({"contexts": [["a"]]}, "contexts[0][0] is 'a'; it must be a whole number"),
        ({"contexts": [[True]]}, "contexts[0][0] is true; it must be a whole number"),
        ({"contexts": [[1.0]]}, "contexts[0][0] is 1.0; it must be a whole number"),
        ({"contexts": [[1 << 40]]}, "contexts[0][0] is 1099511627776; it must be below 2147483648"),
        ({"contexts": [[40]]}, "token id 40 is not in the vocabulary of 40"),
        ({"contexts": [[]] * 257}, "contexts: the batch has 257 queries; the limit is 256; split it"),
        ({"contexts": [[1] * 4097]}, "contexts[0] has 4097 tokens; the limit is 4096"),
        ({"contexts": [[1]], "max_nodes": 1025}, "max_nodes is 1025; it must be at most 1024"),
        (
            {"contexts": [[1]], "max_nodes": [1, 2]},
            "max_nodes has 2 entries for 1 contexts; give one, or one for each context",
        ),
        ({"contexts": [[1]], "max_nodes": [1.5]}, "max_nodes"),
        ({"contexts": [[1]] * 129, "max_nodes": 1024}, "max_nodes add up to 132096; the limit is 131072"),
        ({"contexts": [[1]], "max_depth": 65}, "max_depth is 65; it must be at most 64"),
        ({"contexts": [[1]], "max_match": 4097}, "max_match is 4097; it must be at most 4096"),
        ({"contexts": [[1]], "max_match": "9"}, "max_match is '9'; it must be a whole number"),
        ({"contexts": [[1]], "min_match": True}, "min_match is true; it must be a whole number"),
        ({"contexts": [[1]], "datastore": 3}, "datastore is 3; it must be a string"),
        (
            {"contexts": [], "datastore": "a", "datastores": [{"name": "b"}]},
            "datastore is 'a', and datastores has names",
        ),
        (
            {"contexts": [], "datastores": [{"name": "wiki", "weight": 17}]},
            "datastores[0].weight is 17; it must be",
        ),
        ({"contexts": [], "datastores": [{"name": "wiki"}] * 2}, "datastores: 'wiki' is named twice; name each"),
        ({"contexts": [], "datastores": ["wiki"]}, "datastores[0] is 'wiki'; it must be an object"),
        (
            {"contexts": [[1]], "depth": 3},
            "depth: unknown key (did you mean max_depth?); the keys are datastore, datastores, contexts, text, group, scope",
        ),
    ],
)
def test_limits(body: Any, text: str, shared_server: DraftServer) -> None:
    status, _, reply = ask(shared_server, "POST", "/v1/draft", body)
    assert (status, reply["error"]["code"]) == (400, "INVALID_ARGUMENT")
    assert text in reply["error"]["message"]


@pytest.mark.parametrize(("size", "text"), [(4097, "contexts[0][0] is 'xxxx"), (4096, "contexts[0][0] is 'xxxx")])
def test_a_context_takes_no_memory_before_it_is_checked(size: int, text: str, server: DraftServer) -> None:
    """Regression: 0.9 MB of strings used to become an array of 18 GB. numpy gives every element the size of the longest."""
    tracemalloc.start()
    try:
        status, _, reply = ask(server, "POST", "/v1/draft", {"contexts": [["x" * 20_000, *[""] * (size - 1)]]})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert status == 400
    assert text in reply["error"]["message"]
    assert peak < 10 << 20  # it was 4 * 20_000 * size bytes


def test_other_datastore_is_not_found(server: DraftServer) -> None:
    status, _, reply = ask(server, "POST", "/v1/lookup", {"contexts": [], "datastore": "../wiki"})
    assert (status, reply["error"]["code"]) == (404, "NOT_FOUND")
    assert "there is no '../wiki'; this caller may read wiki" in reply["error"]["message"]


@pytest.mark.parametrize("kind", ALL_ERRORS)
def test_every_error_has_its_status(kind: type[SuffolkError], server: DraftServer, brute: BruteForceRetriever) -> None:
    brute.fault = kind("segment 3: no good")
    status, _, reply = ask(server, "POST", "/v1/draft", {"contexts": [[1]]})
    code, http_status = STATUS_CODES[kind]
    retry = {"retry_seconds": 1.0} if kind is Unavailable else {}
    assert (status, reply["error"]) == (http_status, {"code": code.name, "message": "segment 3: no good"} | retry)


def test_fault_in_the_server(server: DraftServer, brute: BruteForceRetriever) -> None:
    brute.fault = ZeroDivisionError("seven")
    status, _, reply = ask(server, "POST", "/v1/draft", {"contexts": [[1]]})
    assert (status, reply["error"]["code"]) == (500, "INTERNAL")
    assert "Traceback" not in reply["error"]["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1/draft", 405),
        ("POST", "/metrics", 405),
        ("PUT", "/v1/draft", 405),
        ("GET", "/../etc/passwd", 404),
    ],
)
def test_other_paths_and_methods(method: str, path: str, status: int, shared_server: DraftServer) -> None:
    assert ask(shared_server, method, path)[0] == status


def raw(server: DraftServer, request: bytes) -> bytes:
    assert server.http is not None
    with socket.create_connection((server.http.host, server.http.port), HANG) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_bodies_are_bounded_before_they_are_read(server: DraftServer) -> None:
    request = b"POST /v1/draft HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    reply = raw(server, request % (limits.MAX_REQUEST_BYTES + 1))
    assert reply.startswith(b"HTTP/1.1 413 ")
    assert b"the body has more than 4194304 bytes, the limit; split it" in reply
    for length in (b"9" * 5000, b"-1", b"1x"):
        assert raw(server, request.replace(b"%d", length)).startswith(b"HTTP/1.1 400 ")
    chunked = b"POST /v1/draft HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%s\r\n" % (limits.MAX_REQUEST_BYTES + 1, b" " * (limits.MAX_REQUEST_BYTES + 1))
    assert raw(server, chunked + chunk).startswith(b"HTTP/1.1 413 ")


def test_two_lengths_are_refused(server: DraftServer) -> None:
    request = b"POST /v1/draft HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    reply = raw(server, request + b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert reply.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in reply


def test_slow_connections_keep_nobody_out(server: DraftServer) -> None:
    assert server.http is not None
    address = (server.http.host, server.http.port)
    held = [socket.create_connection(address, HANG) for _ in range(SPARE_CONNECTIONS)]
    for connection in held:
        connection.sendall(b"GET /livez HTTP/1.1\r\n")  # and no more
    assert ask(server, "GET", "/livez")[0] == 200
    for connection in held:
        connection.close()


def test_silent_connections_are_closed(brute: BruteForceRetriever, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DraftServer, "http_limits", lambda server: HttpLimits(read_seconds=0.1, idle_seconds=0.1))
    with serving({"wiki": brute}) as server:
        assert raw(server, b"POST /v1/draft HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{").startswith(
            b"HTTP/1.1 408"
        )
        assert raw(server, b"GET").startswith(b"HTTP/1.1 408")
        assert raw(server, b"") == b""
        assert raw(server, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(
            b"HTTP/1.1 200"
        )  # idle afterwards
        assert ask(server, "GET", "/livez")[0] == 200


def test_connections_are_bounded(server: DraftServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.http is not None
    address = (server.http.host, server.http.port)
    held = []
    for _ in range(SPARE_CONNECTIONS):
        connection = socket.create_connection(address, HANG)
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(17).startswith(b"HTTP/1.1 200")
        held.append(connection)
    assert ask(server, "GET", "/livez")[0] == 200  # in the place of the first one
    held.append(socket.create_connection(address, HANG))
    monkeypatch.setattr(LimitedProtocol, "is_idle", lambda connection: False)
    reply = raw(server, b"")
    assert reply.startswith(b"HTTP/1.1 503 ")
    assert b"Retry-After: 1" in reply
    for connection in held:
        connection.close()


def test_admission_is_shared_with_grpc(server: DraftServer, brute: BruteForceRetriever) -> None:
    brute.gate.clear()
    with ThreadPoolExecutor(2) as pool:
        held = [pool.submit(ask, server, "POST", "/v1/draft", {"contexts": [[1]]}) for _ in range(2)]
        while server.service.admission.in_flight() < 2:
            assert brute.entered.wait(HANG)
        status, headers, reply = ask(server, "POST", "/v1/draft", {"contexts": [[1]]})
        assert (status, reply["error"]["code"], headers["retry-after"]) == (429, "RESOURCE_EXHAUSTED", "1")
        assert ask(server, "GET", "/livez")[0] == 200
        assert b"suffolk_requests_in_flight 2.0" in ask(server, "GET", "/metrics")[2]
        brute.gate.set()
        assert [future.result()[0] for future in held] == [200, 200]


def test_metrics_can_be_parsed(server: DraftServer) -> None:
    ask(server, "POST", "/v1/draft", {"contexts": [[1, 2], [1], []]})
    ask(server, "POST", "/v1/draft", {"contexts": [[99]]})
    status, headers, text = ask(server, "GET", "/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    samples = {
        (sample.name, *sorted(filter(None, sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }
    assert samples["suffolk_requests_total", "Draft", "OK", "http"] == 1
    assert samples["suffolk_requests_total", "Draft", "INVALID_ARGUMENT", "http"] == 1
    assert samples["suffolk_match_length_count",] == 3
    assert samples["suffolk_match_length_sum",] == 3
    assert samples["suffolk_datastore_generation", "wiki"] == 7
    assert samples["process_resident_memory_bytes",] > 0


def test_readiness_ends_before_the_process(server: DraftServer) -> None:
    assert ask(server, "GET", "/livez")[0] == ask(server, "GET", "/readyz?verbose")[0] == 200
    server.mark_unready("a test")
    assert ask(server, "GET", "/livez")[0] == 200
    assert ask(server, "GET", "/readyz")[0] == 503


def test_a_server_that_stops_finishes_its_answers(brute: BruteForceRetriever) -> None:
    """Regression: stopping the server used to cut off running answers."""
    brute.gate.clear()
    with serving({"wiki": brute}, grace=HANG) as server, ThreadPoolExecutor(2) as pool:
        answer = pool.submit(ask, server, "POST", "/v1/draft", {"contexts": [[1]]})
        assert brute.entered.wait(HANG)
        stop = pool.submit(server.stop)
        until(lambda: ask(server, "GET", "/readyz")[0] == 503)
        until(lambda: ask(server, "POST", "/v1/draft", {"contexts": [[1]]})[0] == 503)  # no new calls
        assert ask(server, "GET", "/livez")[0] == 200
        assert not wait({stop}, timeout=0.2).done
        brute.gate.set()
        assert answer.result()[0] == 200
        stop.result(HANG)
    with pytest.raises(ConnectionRefusedError):
        ask(server, "GET", "/livez")


def test_calls_that_outlast_the_grace_are_cut_off(brute: BruteForceRetriever) -> None:
    brute.gate.clear()
    with serving({"wiki": brute}, grace=0.1) as server, ThreadPoolExecutor(2) as pool:
        answer = pool.submit(ask, server, "POST", "/v1/draft", {"contexts": [[1]]})
        assert brute.entered.wait(HANG)
        stop = pool.submit(server.stop)
        with pytest.raises((http.client.HTTPException, OSError)):
            answer.result(HANG)
        brute.gate.set()  # the server cannot interrupt the call's thread: let it finish
        stop.result(HANG)


def test_http_can_be_left_out(brute: BruteForceRetriever) -> None:
    with serving({"wiki": brute}, http=None) as server:
        assert re.fullmatch(r"serving wiki on grpc 127\.0\.0\.1:\d+", server.announcement())


def test_calls_over_http_have_a_deadline(server: DraftServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_app, "HTTP_SECONDS", 0.0)
    for path in ("/v1/draft", "/v1/lookup"):
        status, _, reply = ask(server, "POST", path, {"contexts": [[1]]})
        assert (status, reply["error"]["code"]) == (504, "DEADLINE_EXCEEDED")
        assert "the deadline passed with 0 of 1 queries answered" in reply["error"]["message"]


def test_large_bodies_get_the_answers_of_small_ones(server: DraftServer) -> None:
    blank = b" " * (1 << 17)
    assert ask(server, "POST", "/v1/lookup", blank + b'{"contexts": [[1]]}')[2]["matches"] == [
        {"length": 1, "count": 2}
    ]
    for body, text in ((b"{", "body: not JSON"), (b'{"contexts": 3}', "contexts: it must be an array")):
        status, _, reply = ask(server, "POST", "/v1/lookup", blank + body)
        assert (status, text in reply["error"]["message"]) == (400, True)
    status, _, text = ask(server, "GET", "/metrics")
    assert b'suffolk_requests_total{code="INVALID_ARGUMENT",method="Lookup",tenant="",transport="http"} 2.0' in text


def test_a_mark_of_utf_8_before_a_body_is_ignored(server: DraftServer) -> None:
    status, _, reply = ask(server, "POST", "/v1/draft", b'\xef\xbb\xbf{"contexts": [[1]]}')
    assert (status, len(reply["trees"])) == (200, 1)
