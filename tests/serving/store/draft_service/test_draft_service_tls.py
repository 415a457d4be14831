"""Tests TLS and mTLS between a draft server and its client, with certificates made by the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.net.endpoint import Endpoint
from suffolk.serving.net.tls import TlsFiles
from tests.support.brute_force import BruteForceRetriever
from tests.support.certificates import make_certificates, needs_openssl
from tests.support.draft_server import LOOPBACK, serving

pytestmark = needs_openssl


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def brute() -> BruteForceRetriever:
    return BruteForceRetriever([[1, 2, 3]], 9)


def test_tls(certificates: Path, brute: BruteForceRetriever, tmp_path: Path) -> None:
    files = TlsFiles(f"{certificates}/server.pem", f"{certificates}/server.key")
    path = Endpoint(path=f"{tmp_path}/s.sock")
    with serving({"wiki": brute}, listen=(LOOPBACK, path), tls=files) as server:
        at = server.listening[0]
        for url in (
            f"grpcs://{at}/wiki?deadline_ms=9000&ca={certificates}/ca.pem",
            f"grpc+unix://{path.path}?deadline_ms=9000",
        ):
            store = connect(url)
            assert store.lookup([1, 2]) == (2, 1)
            store.close()
        for url in (f"grpcs://{at}/wiki?ca={certificates}/stranger.pem", f"grpcs://{at}/wiki", f"grpc://{at}/wiki"):
            with pytest.raises(SuffolkError):
                connect(url)


def test_mutual_tls(certificates: Path, brute: BruteForceRetriever) -> None:
    files = TlsFiles(f"{certificates}/server.pem", f"{certificates}/server.key", f"{certificates}/ca.pem")
    with serving({"wiki": brute}, tls=files) as server:
        url = f"grpcs://{server.listening[0]}/wiki?deadline_ms=9000&ca={certificates}/ca.pem"
        store = connect(f"{url}&cert={certificates}/client.pem&key={certificates}/client.key")
        assert store.lookup([1, 2]) == (2, 1)
        store.close()
        for strange in (url, f"{url}&cert={certificates}/stranger.pem&key={certificates}/stranger.key"):
            with pytest.raises(SuffolkError):
                connect(strange)
    assert brute.calls == [1]


def test_a_certificate_and_a_key_that_do_not_match(certificates: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"client.key: not a certificate and its key in PEM form: .*MISMATCH"):
        connect(f"grpcs://127.0.0.1:1/wiki?cert={certificates}/server.pem&key={certificates}/client.key")
