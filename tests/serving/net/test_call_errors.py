"""Errors of calls: their codes, how they travel, and what a client says about them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from suffolk.datastore.errors import (
    ALL_ERRORS,
    DeadlineExceeded,
    Field,
    InvalidArgument,
    ResourceExhausted,
    SuffolkError,
    Unavailable,
    Unsupported,
)
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.net.admission import MAX_RETRY_SECONDS
from suffolk.serving.net.call_errors import (
    MAX_ERROR_TEXT,
    RETRY_KEY,
    STATUS_CODES,
    abort_call,
    call_error,
    error_from_code,
    error_text,
    grpc_code,
    http_status,
    retry_seconds,
    retry_trailer,
    sent_retry_seconds,
)
from suffolk.serving.net.tls import TlsFiles
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.worker.client import connect_worker
from tests.support.brute_force import BruteForceRetriever
from tests.support.certificates import make_certificates, needs_openssl
from tests.support.draft_server import serving
from tests.support.waiting import HANG


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


ERRORS = [kind("bad") for kind in ALL_ERRORS] + [
    InvalidArgument("line 3: ", Field("max_nodes"), " is 9; it must be 8"),
    InvalidArgument(Field("größe"), " is ü"),
    Unavailable("the server is stopping", change="none"),
    DeadlineExceeded("2 of 3 copies", change="unknown"),
    ResourceExhausted("full", change="none", retry_seconds=0.25),
]


class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    """Ends each call with the error of the number that it gets."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        def call(request: bytes, context: grpc.ServicerContext) -> bytes:
            if not request:
                context.abort(grpc.StatusCode.UNAVAILABLE, "of another server")
            abort_call(context, ERRORS[int(request)])

        return grpc.unary_unary_rpc_method_handler(call)


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    server = grpc.server(ThreadPoolExecutor(1), [Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as opened:
        yield opened
    server.stop(None)


def received(channel: grpc.Channel, request: bytes) -> SuffolkError:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/x/Y")(request, timeout=HANG)
    return call_error(caught.value, "grpc://x", "draft service", "late")


@pytest.mark.parametrize("number", range(len(ERRORS)))
def test_errors_arrive_with_their_data(channel: grpc.Channel, number: int) -> None:
    sent, found = ERRORS[number], received(channel, b"%d" % number)
    assert type(found) is type(sent)
    assert str(found) == f"grpc://x: {sent}"
    retry = 1.0 if isinstance(sent, Unavailable) else sent.retry_seconds
    assert (found.field, found.change, found.retry_seconds) == (sent.field, sent.change, retry)
    found.rename({"max_nodes": "--max-nodes"})
    assert ("--max-nodes" in str(found)) == (sent.field == "max_nodes")


def test_an_error_of_another_server_says_nothing_of_changes(channel: grpc.Channel) -> None:
    found = received(channel, b"")
    assert (type(found), found.change, found.field) == (Unavailable, "unknown", None)


def test_a_call_without_a_connection_changed_nothing() -> None:
    with grpc.insecure_channel("127.0.0.1:1") as nothing:
        found = received(nothing, b"")
    assert (type(found), found.change) == (Unavailable, "none")
    assert "nothing listens there" in str(found)


Call = Callable[[str], object]


def ask_worker(url: str) -> object:
    with connect_worker(url) as client:
        return client.info()


def generate(url: str) -> object:
    with connect_worker(url) as client:
        return list(client.generate("x"))


CALLS = pytest.mark.parametrize(
    ("call", "server"), [(connect, "draft service"), (ask_worker, "worker"), (generate, "worker")]
)


def message_of(call: Call, url: str, kind: type[SuffolkError] = Unavailable) -> str:
    """The message after the URL."""
    with pytest.raises(kind) as caught:
        call(url)
    text = str(caught.value)
    assert text.startswith(f"{url}: "), text
    for raw in ("failed to connect", "ipv4:", "SSL_ERROR", "Method not found"):
        assert raw not in text
    return text.removeprefix(f"{url}: ")


@pytest.fixture(scope="module")
def plain() -> Iterator[DraftServer]:
    with serving({"wiki": BruteForceRetriever([[1, 2, 3]], 9)}) as server:
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@CALLS
def test_nothing_listens_there(call: Call, server: str, tmp_path: Path) -> None:
    expected = f"nothing listens there; start the {server} or correct the address"
    with socket.socket() as bound:  # bound, not listening
        bound.bind(("127.0.0.1", 0))
        assert message_of(call, f"grpc://127.0.0.1:{bound.getsockname()[1]}") == expected
    assert message_of(call, f"grpc+unix://{tmp_path}/none.sock") == expected


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_proxy_is_asked_for_this_machine(host: str, plain: DraftServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: with http_proxy in the environment, "nothing listens there"."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    with connect(f"grpc://{host}:{plain.listening[0].port}/wiki") as store:
        assert store.lookup([1]).count == 1


@CALLS
def test_the_port_belongs_to_another_server(call: Call, server: str, plain: DraftServer) -> None:
    expected = f"the server does not speak gRPC; use the {server}'s gRPC port, not its HTTP port"
    assert message_of(call, f"grpc://{plain.http}") == expected
    if server == "worker":
        expected = "there is no worker of this version at this address; correct the port"
        assert message_of(call, f"grpc://{plain.listening[0]}", Unsupported) == expected


@needs_openssl
@CALLS
def test_tls_on_one_side_alone(call: Call, server: str, plain: DraftServer, certificates: Path) -> None:
    ca = f"?ca={certificates}/ca.pem"
    assert message_of(call, f"grpcs://{plain.listening[0]}{ca}") == (
        "the server does not use TLS; write grpc:// in place of grpcs://, "
        f"or start the {server} with --tls-cert and --tls-key"
    )
    files = TlsFiles(f"{certificates}/server.pem", f"{certificates}/server.key", f"{certificates}/ca.pem")
    with serving({"wiki": BruteForceRetriever([[1]], 9)}, tls=files) as strict:
        at = strict.listening[0]
        assert message_of(call, f"grpc://{at}").endswith("if it uses TLS, write grpcs://HOST:PORT?ca=FILE")
        assert message_of(call, f"grpcs://{at}{ca}").endswith(
            "if it requires client certificates, add cert=FILE and key=FILE"
        )
        assert message_of(call, f"grpcs://{at}") == (
            "the server's TLS certificate is not from a trusted authority; name the authority's certificate with ?ca=FILE"
        )
        assert message_of(call, f"grpcs://localhost:{at.port}{ca}") == (
            "the server's TLS certificate is for another host; use a name or address that is in it"
        )


def test_a_server_that_takes_connections_and_never_answers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        for call in (connect, ask_worker):  # the deadline of facts, or gRPC's own for a connection, whichever is first
            assert any(
                words in message_of(call, url, SuffolkError) for words in ("no answer within", "does not answer")
            )


def test_the_trailer_says_what_the_error_says() -> None:
    for error, seconds in (
        (ResourceExhausted("full", retry_seconds=0.25), 0.25),
        (ResourceExhausted("too large"), None),
        (Unavailable("stopping"), MAX_RETRY_SECONDS),
        (InvalidArgument("wrong"), None),
    ):
        assert retry_seconds(error) == sent_retry_seconds(retry_trailer(retry_seconds(error))) == seconds


@pytest.mark.parametrize("metadata", [None, (), (("other", "5"),), ((RETRY_KEY, "x"),), ((RETRY_KEY, "-1"),)])
def test_other_trailers_say_nothing(metadata: object) -> None:
    assert sent_retry_seconds(metadata) is None
