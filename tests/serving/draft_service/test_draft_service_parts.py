"""The small parts of the draft service: URLs, endpoints, errors, limits, breaker, wire, metrics."""

from __future__ import annotations

import errno
import socket
import stat
from pathlib import Path

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suffolk.cli.serve import parse_stores
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import (
    ALL_ERRORS,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    SuffolkError,
)
from suffolk.serving.draft_service import limits, wire
from suffolk.serving.draft_service.breaker import CircuitBreaker
from suffolk.serving.draft_service.metrics import DraftMetrics
from suffolk.serving.draft_service.server import DraftServerConfig
from suffolk.serving.proto import draft_pb2
from suffolk.serving.transport.admission import AdmissionController
from suffolk.serving.transport.channel import MAX_BACKOFF_SECONDS
from suffolk.serving.transport.endpoint import Endpoint, check_free, parse_endpoint
from suffolk.serving.transport.limits import MAX_ERROR_TEXT
from suffolk.serving.transport.status import STATUS_CODES, error_from_code, error_text, grpc_code, http_status
from suffolk.serving.transport.tls import TlsFiles, channel_credentials, server_credentials
from suffolk.serving.transport.tokens import pack_tokens, to_tokens, unpack_tokens
from suffolk.serving.transport.url import ServiceUrl, is_url, parse_url
from suffolk.serving.worker.client import connect_worker
from tests.support.brute_force import BruteForceRetriever, assert_same_tree

VOCABULARY = 50


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("grpc://127.0.0.1:7700/wiki", ServiceUrl("127.0.0.1:7700", "wiki")),
        ("grpc://host", ServiceUrl("host:7700")),
        ("grpc://[::1]:9/a.b-c", ServiceUrl("[::1]:9", "a.b-c")),
        ("grpc://host/wiki?deadline_ms=7.5", ServiceUrl("host:7700", "wiki", 0.0075)),
        ("grpc+unix:///run/s.sock#wiki", ServiceUrl("unix:/run/s.sock", "wiki")),
        ("grpc+unix:///run/s.sock?deadline_ms=5", ServiceUrl("unix:/run/s.sock", "", 0.005)),
        (
            "grpcs://host:1/wiki?ca=/a.pem&cert=b.pem&key=c.pem",
            ServiceUrl("host:1", "wiki", None, True, "/a.pem", "b.pem", "c.pem"),
        ),
    ],
)
def test_urls(url: str, parts: ServiceUrl) -> None:
    assert is_url(url)
    assert parse_url(url) == parts


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("s3://bucket/store", "not the URL of a draft service or worker; the forms are"),
        ("http://host/wiki", "not the URL of a draft service or worker; the forms are grpc://HOST:PORT/NAME"),
        ("grpc://host:99999/wiki", "Port out of range"),
        ("grpc://host/a/b", "malformed URL; the forms are grpc://HOST:PORT/NAME"),
        ("grpc:///wiki", "malformed URL; the forms are grpc://HOST:PORT/NAME"),
        ("grpc://host/wiki?retries=3", "unknown option 'retries'; grpc:// knows deadline_ms"),
        ("grpc://host/wiki?ca=x", "unknown option 'ca'"),
        ("grpcs://host/wiki?cert=x", "cert and key belong together"),
        ("grpcs://host/wiki?ca=", "ca is empty; give it a value or leave it out"),
        ("grpcs://host/wiki?cert=&key=x", "cert is empty"),
        ("grpcs://host/wiki?cert=x&key=", "key is empty"),
        ("grpc://host/wiki?deadline_ms=0", "deadline_ms is '0'; it must be a number above 0"),
        ("grpc://host/wiki?deadline_ms=nan", "deadline_ms is 'nan'"),
        ("grpc+unix://run/s.sock#wiki", "has three slashes"),
    ],
)
def test_bad_urls(url: str, text: str) -> None:
    assert is_url(url)  # and not the path of a datastore, of which one would be told to build it
    with pytest.raises(InvalidArgument) as caught:
        parse_url(url)
    assert text in str(caught.value)
    assert url in str(caught.value)


@pytest.mark.parametrize("url", ["http://host:7710", "grpc://host:7710/a/b", "grpc+unix://run/s.sock"])
def test_a_bad_url_of_a_worker_is_answered_with_those_of_workers(url: str) -> None:
    with pytest.raises(
        InvalidArgument, match=r"the forms are grpc://HOST:PORT, grpcs://HOST:PORT\?ca=FILE or grpc\+unix:///PATH$"
    ):
        connect_worker(url)


@pytest.mark.parametrize("path", ["store/", "/a/grpc", "grpc:store"])
def test_paths_are_no_urls(path: str) -> None:
    assert not is_url(path)


def test_endpoints() -> None:
    assert str(parse_endpoint("127.0.0.1:0", "--listen")) == "127.0.0.1:0"
    assert parse_endpoint("[::1]:80", "--listen") == Endpoint("::1", 80)
    assert parse_endpoint("unix:/a/b", "--listen") == Endpoint(path="/a/b")
    assert parse_endpoint("127.0.0.1:0", "--listen").with_port(5) == Endpoint("127.0.0.1", 5)
    private = ["127.0.0.9:1", "[::1]:1", "localhost:1", "unix:/x"]
    assert [parse_endpoint(text, "").is_private() for text in private] == [True] * 4
    assert [parse_endpoint(text, "").is_private() for text in ("0.0.0.0:1", "[::]:1", "example.org:1")] == [False] * 3


@pytest.mark.parametrize(
    "text", ["7700", ":7700", "host:", "host:65536", "host:-1", "host:1x", "unix:", "unix:/" + "a" * 107]
)
def test_bad_endpoints(text: str) -> None:
    with pytest.raises(InvalidArgument, match="--listen: "):
        parse_endpoint(text, "--listen")


def test_port_in_use_is_found_before_binding() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = Endpoint("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(
            ResourceExhausted, match=f"--listen: {endpoint} is in use by another process; stop it or choose"
        ):
            check_free(endpoint, "--listen")
    check_free(endpoint, "--listen")


def test_unix_socket_is_taken_over_only_from_the_dead(tmp_path: Path) -> None:
    endpoint = Endpoint(path=str(tmp_path / "s.sock"))
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(endpoint.path)
        alive.listen()
        with pytest.raises(ResourceExhausted, match="is in use by another process"):
            check_free(endpoint, "--listen")
    assert stat.S_ISSOCK((tmp_path / "s.sock").stat().st_mode)
    check_free(endpoint, "--listen")
    assert not (tmp_path / "s.sock").exists()
    (tmp_path / "s.sock").write_text("precious")
    with pytest.raises(InvalidArgument, match="exists and is not a socket; remove it or choose another path"):
        check_free(endpoint, "--listen")
    assert (tmp_path / "s.sock").read_text() == "precious"
    with pytest.raises(InvalidArgument, match="No such file or directory"):
        check_free(Endpoint(path=str(tmp_path / "none/s.sock")), "--listen")


@pytest.mark.parametrize("kind", ALL_ERRORS)
def test_errors_keep_their_kind_both_ways(kind: type[SuffolkError]) -> None:
    class Narrower(kind):  # type: ignore[misc, valid-type]
        pass

    for error in (kind("store: 3"), Narrower("store: 3")):
        back = error_from_code(grpc_code(error), error_text(error))
        assert type(back) is kind
        assert str(back) == "store: 3"
        assert 400 <= http_status(error) < 600


def test_error_table_is_one_to_one() -> None:
    assert set(STATUS_CODES) == set(ALL_ERRORS)
    assert len({code for code, _ in STATUS_CODES.values()}) == len(ALL_ERRORS)


@pytest.mark.parametrize("code", grpc.StatusCode)
def test_every_code_is_some_error(code: grpc.StatusCode) -> None:
    assert isinstance(error_from_code(code, "text"), SuffolkError)


def test_error_text_fits_one_short_line() -> None:
    assert error_text(InvalidArgument("a\n  b")) == "a b"
    assert len(error_text(InvalidArgument("x" * 5000))) == MAX_ERROR_TEXT


def test_largest_reply_fits() -> None:
    nodes = limits.MAX_BATCH_NODES // limits.MAX_NODES
    full = DraftTree(
        *(np.ones(limits.MAX_NODES, kind) for kind in (np.int32, np.int32, np.float32, np.uint8, np.uint64))
    )
    reply = draft_pb2.DraftReply(trees=[wire.pack_tree(full)] * nodes)
    assert reply.ByteSize() <= limits.MAX_REPLY_BYTES


def test_breaker_opens_probes_and_closes() -> None:
    now = [0.0]
    breaker = CircuitBreaker(max_failures=3, retry_seconds=1.0, clock=lambda: now[0])
    for _ in range(2):
        assert breaker.allows_call()
        breaker.record_failure()
    breaker.record_success()
    for _ in range(3):
        assert breaker.allows_call()
        breaker.record_failure()
    assert breaker.is_open()
    assert not breaker.allows_call()
    now[0] = 1.0
    assert breaker.allows_call()  # the probe, whose caller never reports
    assert not breaker.allows_call()
    now[0] = 2.0
    assert breaker.allows_call()
    breaker.record_failure()
    now[0] = 2.9
    assert not breaker.allows_call()
    now[0] = 3.0
    assert breaker.allows_call()
    breaker.record_success()
    assert not breaker.is_open()
    assert breaker.allows_call()


def test_a_service_that_is_back_is_noticed_within_two_seconds() -> None:
    now = [0.0]
    breaker = CircuitBreaker(clock=lambda: now[0])
    while not breaker.is_open():
        breaker.record_failure()
    for _ in range(3):  # it is back just after a probe has failed: the next one comes, and a connection for it
        begin = now[0]
        while not breaker.allows_call():
            now[0] += 0.01
        assert now[0] - begin + 1.2 * MAX_BACKOFF_SECONDS < 2
        breaker.record_failure()


def test_admission_controller_rejects_calls_beyond_its_limit() -> None:
    admission = AdmissionController(2, "--max-concurrent")
    with admission.admit_call(), admission.admit_call():
        assert admission.in_flight() == 2
        with pytest.raises(
            ResourceExhausted, match="already runs 2 calls, its limit; try again later or raise --max-concurrent"
        ):
            admission.admit_call().__enter__()
    assert admission.in_flight() == 0


def test_trees_survive_the_wire() -> None:
    store = BruteForceRetriever([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 9]], VOCABULARY)
    trees = [store.draft([1, 2]), store.draft([40]), store.draft([2, 3], max_nodes=1)]
    messages = [draft_pb2.DraftTree.FromString(wire.pack_tree(tree).SerializeToString()) for tree in trees]
    for actual, expected in zip(wire.unpack_trees(messages, [64, 64, 1], 16, VOCABULARY), trees, strict=True):
        assert_same_tree(actual, expected)
    assert wire.unpack_trees([], [], 16, VOCABULARY) == []


@settings(max_examples=200)
@given(st.data())
def test_hostile_trees_are_refused_or_sound(data: st.DataObject) -> None:
    def tree() -> draft_pb2.DraftTree:
        size = data.draw(st.integers(0, 4))
        small = st.one_of(st.integers(-2, 4), st.sampled_from([VOCABULARY - 1, VOCABULARY, -(1 << 31), (1 << 31) - 1]))
        ints = st.lists(small, min_size=size, max_size=size).map(lambda values: np.array(values, "<i4").tobytes())
        chances = st.sampled_from([0.0, 0.5, 1.0, 1.5, -0.5, float("nan"), float("inf")])
        floats = st.lists(chances, min_size=size, max_size=size).map(lambda values: np.array(values, "<f4").tobytes())
        junk = st.binary(max_size=9)
        return draft_pb2.DraftTree(
            tokens=data.draw(st.one_of(ints, junk)),
            parents=data.draw(st.one_of(ints, ints, junk)),
            scores=data.draw(st.one_of(floats, junk)),
            counts=data.draw(st.one_of(st.just(bytes(8 * size)), junk)),
            match_length=data.draw(st.integers(0, 4)),
        )

    messages = [tree() for _ in range(data.draw(st.integers(0, 3)))]
    budgets = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))
    try:
        trees = wire.unpack_trees(messages, budgets, 3, VOCABULARY)
    except InvalidArgument:
        return
    assert len(trees) == len(budgets)
    for sound, budget in zip(trees, budgets, strict=True):
        assert len(sound.validate(VOCABULARY)) <= budget
        assert sound.match_length <= 3
        assert np.all((sound.scores >= 0) & (sound.scores <= 1))


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        ([1.5], "array of float64; give a flat list of integers"),
        ([[1], [2]], "2-dimensional array"),
        ([1, [2]], "not a flat list of token ids"),
        ([True], "array of bool"),
        (["a"], "give a flat list of integers"),
        ([1 << 31], "beyond 32 bits"),
        ([1 << 70], "field"),
        (np.array([-1 << 40]), "beyond 32 bits"),
    ],
)
def test_bad_tokens(ids: list[int], text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        to_tokens(ids, "field")
    assert text in str(caught.value)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.uint32, np.int64, np.uint64, ">i4"])
def test_tokens_of_any_integer_type(dtype: str) -> None:
    tokens = to_tokens(np.array([0, 7, 99], dtype), "field")
    assert pack_tokens(tokens) == b"\0\0\0\0\7\0\0\0\x63\0\0\0"
    assert unpack_tokens(pack_tokens(tokens), "field").tolist() == [0, 7, 99]
    assert pack_tokens(to_tokens([], "field")) == b""


def test_metrics_count_in_bulk() -> None:
    metrics = DraftMetrics(
        {"wiki": BruteForceRetriever([[1, 2, 3]], VOCABULARY)}, AdmissionController(5, "--max-concurrent")
    )
    metrics.count_batch("Draft", [0, 1, 16, 300], [0, 64, 1, 2])
    metrics.count_batch("Lookup", [], [])
    metrics.count_call("grpc", "Draft", "RESOURCE_EXHAUSTED", 0.003)
    lines = metrics.exposition().decode().splitlines()
    for line in (
        'suffolk_match_length_bucket{le="0.0"} 1.0',
        'suffolk_match_length_bucket{le="1.0"} 2.0',
        'suffolk_match_length_bucket{le="64.0"} 3.0',
        'suffolk_match_length_bucket{le="+Inf"} 4.0',
        "suffolk_match_length_count 4.0",
        "suffolk_match_length_sum 317.0",
        "suffolk_draft_nodes_sum 67.0",
        'suffolk_batch_size_sum{method="Draft"} 4.0',
        'suffolk_requests_total{code="RESOURCE_EXHAUSTED",method="Draft",transport="grpc"} 1.0',
        'suffolk_requests_rejected_total{method="Draft",transport="grpc"} 1.0',
        'suffolk_request_duration_seconds_bucket{le="0.005",method="Draft",transport="grpc"} 1.0',
        "suffolk_requests_in_flight 0.0",
        'suffolk_datastore_generation{datastore="wiki"} 7.0',
        'suffolk_datastore_tokens{datastore="wiki"} 3.0',
    ):
        assert line in lines


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"listen": ()}, "--listen: no endpoint; give HOST:PORT or unix:PATH"),
        ({"max_concurrent": 0}, "--max-concurrent is 0; it must be in 1..1024"),
        ({"grace": -1.0}, "--grace is -1.0; it must be in 0..600 seconds"),
        ({"http": Endpoint(path="/x")}, "--http: unix:/x is a unix socket; give HOST:PORT"),
        ({"listen": (Endpoint("0.0.0.0", 1),)}, "give --tls-cert and --tls-key, or --insecure"),
        (
            {"listen": (Endpoint("::1", 5),), "http": Endpoint("::1", 5)},
            "--http: [::1]:5 is already given to --listen; choose another address",
        ),
        ({"listen": (Endpoint(path="/x"), Endpoint(path="/x"))}, "--listen: unix:/x is already given to --listen"),
        ({"http": Endpoint("0.0.0.0", 1)}, "would expose plaintext to other machines; give --insecure"),
        ({"http": Endpoint("0.0.0.0", 1), "tls": TlsFiles("a", "b")}, "--http: 0.0.0.0:1 would expose plaintext"),
    ],
)
def test_bad_server_settings(changes: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        DraftServerConfig(**{"listen": (Endpoint("127.0.0.1", 0),), **changes})  # type: ignore[arg-type]
    assert text in str(caught.value)


def test_remote_plaintext_on_request() -> None:
    everywhere = Endpoint("0.0.0.0", 1)
    assert DraftServerConfig((everywhere,), Endpoint("0.0.0.0", 2), insecure=True).insecure
    assert DraftServerConfig((everywhere,), tls=TlsFiles("a", "b")).tls is not None


def test_bad_tls_files(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="/none.pem: cannot read the TLS file: No such file"):
        server_credentials(TlsFiles(f"{tmp_path}/none.pem", f"{tmp_path}/none.pem"))
    (tmp_path / "junk.pem").write_text("junk")
    with pytest.raises(InvalidArgument, match="junk.pem: not a certificate and its key in PEM form"):
        server_credentials(TlsFiles(f"{tmp_path}/junk.pem", f"{tmp_path}/junk.pem"))
    with pytest.raises(InvalidArgument, match="junk.pem: not a certificate and its key in PEM form"):
        channel_credentials(TlsFiles(key=f"{tmp_path}/junk.pem"))  # gRPC aborts the process for half a pair
    with pytest.raises(NotFound, match=f"{tmp_path}: cannot read the TLS file: Is a directory"):
        channel_credentials(TlsFiles(f"{tmp_path}/junk.pem", str(tmp_path)))


def test_a_key_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenSSL's own PermissionError names no file, and was a traceback in place of a line."""

    def refuse(path: Path) -> bytes:  # who runs as root may read everything
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(PermissionDenied, match="key.pem: cannot read the TLS file: Permission denied"):
        channel_credentials(TlsFiles(ca=f"{tmp_path}/key.pem"))


def test_store_names(tmp_path: Path) -> None:
    assert parse_stores([f"{tmp_path}/wiki/", "code=/data/code-v3"]) == {
        "wiki": f"{tmp_path}/wiki/",
        "code": "/data/code-v3",
    }
    with pytest.raises(InvalidArgument, match="a/x has the name 'x' already; write NAME=PATH to give another"):
        parse_stores(["a/x", "b/x"])
    with pytest.raises(InvalidArgument, match="'a,b' cannot name a datastore"):
        parse_stores(["a,b=c"])
