"""Tests the network settings of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.datastore.errors import (
    InvalidArgument,
)
from suffolk.serving.net.endpoint import Endpoint
from suffolk.serving.net.tls import TlsFiles
from suffolk.serving.store.draft_service.server import DraftServerConfig


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"listen": ()}, "--listen: no endpoint; give HOST:PORT or unix:PATH"),
        ({"max_concurrent": 0}, "max_concurrent is 0; it must be in 1..1024"),
        ({"grace": -1.0}, "grace is -1.0; it must be in 0..600 seconds"),
        ({"http": Endpoint(path="/x")}, "--http: unix:/x is a unix socket; give HOST:PORT"),
        ({"listen": (Endpoint("0.0.0.0", 1),)}, "give --tls-cert and --tls-key, or --insecure"),
        (
            {"listen": (Endpoint("::1", 5),), "http": Endpoint("::1", 5)},
            "--http: [::1]:5 is already given to --listen; choose another address",
        ),
        ({"listen": (Endpoint(path="/x"), Endpoint(path="/x"))}, "--listen: unix:/x is already given to --listen"),
        (
            {"listen": (Endpoint("0.0.0.0", 1),), "tls": TlsFiles("a", "b")},
            "--listen: 0.0.0.0:1 would answer every machine that can reach it; give --access with tokens, --tls-client-ca",
        ),
        (
            {"http": Endpoint("0.0.0.0", 1), "tls": TlsFiles("a", "b")},
            "--http: 0.0.0.0:1 would answer every machine that can reach it",
        ),
        ({"listen": (Endpoint("0.0.0.0", 1),), "access": Path("a")}, "would expose plaintext to other machines"),
        ({"http": Endpoint("0.0.0.0", 1)}, "would expose plaintext to other machines; give --tls-cert"),
    ],
)
def test_bad_server_settings(changes: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        DraftServerConfig(**{"listen": (Endpoint("127.0.0.1", 0),), **changes})  # type: ignore[arg-type]
    assert text in str(caught.value)


def test_remote_plaintext_on_request() -> None:
    everywhere = Endpoint("0.0.0.0", 1)
    assert DraftServerConfig((everywhere,), Endpoint("0.0.0.0", 2), insecure=True).insecure
    for more in ({"tls": TlsFiles("a", "b", "c")}, {"tls": TlsFiles("a", "b"), "access": Path("d")}):
        config = DraftServerConfig((everywhere,), Endpoint("0.0.0.0", 2), **more)  # type: ignore[arg-type]
        assert config.authenticates
