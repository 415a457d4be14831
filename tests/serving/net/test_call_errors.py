"""Tests the messages of calls that cannot connect. They are one line from Suffolk, and never gRPC's text."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from suffolk.datastore.errors import SuffolkError, Unavailable, Unsupported
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.net.tls import TlsFiles
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.worker.client import connect_worker
from tests.support.brute_force import BruteForceRetriever
from tests.support.certificates import make_certificates, needs_openssl
from tests.support.draft_server import serving

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
