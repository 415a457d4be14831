"""What a caller is told when there is nobody, or somebody else, where it calls: one line of ours, never gRPC's."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from suffolk.datastore.errors import SuffolkError, Unavailable, Unsupported
from suffolk.serving.draft_service.client import connect
from suffolk.serving.draft_service.server import DraftServer
from suffolk.serving.transport.tls import TlsFiles
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


def said(call: Call, url: str, kind: type[SuffolkError] = Unavailable) -> str:
    """The message behind the URL."""
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
        assert said(call, f"grpc://127.0.0.1:{bound.getsockname()[1]}") == expected
    assert said(call, f"grpc+unix://{tmp_path}/none.sock") == expected


@CALLS
def test_the_port_is_another_ones(call: Call, server: str, plain: DraftServer) -> None:
    expected = f"what listens there speaks no gRPC; give the {server}'s gRPC port, not its HTTP port"
    assert said(call, f"grpc://{plain.http}") == expected
    if server == "worker":
        expected = "what listens there is no worker, nor of this version; correct the port"
        assert said(call, f"grpc://{plain.listening[0]}", Unsupported) == expected


@needs_openssl
@CALLS
def test_tls_on_one_side_alone(call: Call, server: str, plain: DraftServer, certificates: Path) -> None:
    ca = f"?ca={certificates}/ca.pem"
    assert said(call, f"grpcs://{plain.listening[0]}{ca}") == (
        "what listens there speaks no TLS; write grpc:// in place of grpcs://, "
        f"or start the {server} with --tls-cert and --tls-key"
    )
    files = TlsFiles(f"{certificates}/server.pem", f"{certificates}/server.key", f"{certificates}/ca.pem")
    with serving({"wiki": BruteForceRetriever([[1]], 9)}, tls=files) as strict:
        at = strict.listening[0]
        assert said(call, f"grpc://{at}").endswith("if it speaks TLS, write grpcs://HOST:PORT?ca=FILE")
        assert said(call, f"grpcs://{at}{ca}").endswith(
            "if it wants a certificate of its callers, add cert=FILE and key=FILE"
        )
        assert said(call, f"grpcs://{at}") == (
            "its TLS certificate is from no authority that is trusted here; name the authority's certificate with ?ca=FILE"
        )
        assert said(call, f"grpcs://localhost:{at.port}{ca}") == (
            "its TLS certificate is another host's; write the name or address that is in it"
        )


def test_a_server_that_takes_connections_and_never_answers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"grpc://127.0.0.1:{silent.getsockname()[1]}"
        for call in (connect, ask_worker):  # the deadline of facts, or gRPC's own for a connection, whichever is first
            assert any(words in said(call, url, SuffolkError) for words in ("no answer within", "does not answer"))
