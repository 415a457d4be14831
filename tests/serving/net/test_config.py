"""Network settings of a server, and which requests of browsers it answers."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from suffolk.datastore.errors import (
    InvalidArgument,
)
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.config import HostRules, ServerConfig, check_hosts
from suffolk.serving.net.endpoint import Endpoint
from suffolk.serving.net.identity import Role
from suffolk.serving.net.tls import TlsFiles
from suffolk.serving.store.draft_service.server import DraftServerConfig
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import LOOPBACK, serving
from tests.support.http_requests import ask
from tests.support.waiting import HANG
from tests.support.worker_server import talking_target, working


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"listen": ()}, "--listen: no endpoint; give HOST:PORT or unix:PATH"),
        ({"max_concurrent": 0}, "max_concurrent is 0; it must be between 1 and 1024"),
        ({"grace": -1.0}, "grace is -1.0; it must be between 0 and 600"),
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


STORES = {"wiki": BruteForceRetriever([[1, 2, 3]], 8)}
LOOKUP = {"contexts": [[1, 2]]}
OWN = ("127.0.0.1", "127.0.0.1:1", "localhost", "LocalHost:80", "[::1]:7701", "127.8.9.1:5")
FOREIGN = (
    "evil.example",
    "evil.example:7701",
    "localhost.evil.example",
    "127.0.0.1.evil.example:1",
    "10.0.0.5",
    "a@localhost",
)
PAGES = ("https://evil.example", "http://localhost.evil.example:80", "null", "", "chrome-extension://abc", "http://")


@pytest.fixture(scope="module")
def target() -> Target:
    return talking_target()


def test_a_draft_service_answers_its_own_names_only() -> None:
    with serving(STORES, playground=True) as server:

        def status(path: str, headers: dict[str, str], body: Any = None) -> tuple[int, Any]:
            code, _, reply = ask(server, "POST" if body else "GET", path, body, headers)
            return code, reply

        for host in OWN:
            assert status("/v1/lookup", {"Host": host}, LOOKUP)[0] == 200
        for host in FOREIGN:
            for path, body in (("/v1/lookup", LOOKUP), ("/v1/info", None), ("/", None), ("/metrics", None)):
                code, reply = status(path, {"Host": host}, body)
                assert (code, reply["error"]["code"]) == (403, "FORBIDDEN")
                assert reply["error"]["message"].startswith(
                    f"host '{host}' is not this server's; call it by a loopback"
                )
        for page in ("http://127.0.0.1:1", f"http://{server.http}", "http://localhost"):
            assert status("/v1/lookup", {"Origin": page}, LOOKUP)[0] == 200
        for page in PAGES:  # a page may send a body of JSON as text/plain without permission
            code, reply = status("/v1/append", {"Origin": page, "Content-Type": "text/plain"}, {"documents": [[1]]})
            assert (code, reply["error"]["message"][: len(page) + 9]) == (403, f"origin {page!r}")
        counted = 'suffolk_requests_total{code="PERMISSION_DENIED",method="Append",tenant="",transport="http"} 6.0'
        assert counted in server.service.metrics.exposition().decode()


def test_a_worker_answers_its_own_names_and_the_pages_that_may_read(target: Target) -> None:
    with working(target, cors_origins=("https://a.example",)) as server:

        def status(**headers: str) -> tuple[int, Any]:
            code, _, reply = ask(server, "GET", "/v1/models", headers=headers)
            return code, reply

        assert all(status(Host=host)[0] == 200 for host in OWN)
        for code, reply in [status(Host=host) for host in FOREIGN] + [status(Origin=page) for page in PAGES]:
            assert (code, reply["error"]["type"]) == (403, "permission_error")
        assert status(Origin="https://a.example")[0] == 200
        assert status(Origin="https://a.example", Host="a.example")[0] == 403
    with working(target, cors_origins=("*",)) as server:
        assert status(Origin="https://evil.example")[0] == 200
        assert status(Origin="https://evil.example", Host="evil.example")[0] == 403


def test_a_health_check_of_http_1_0_needs_no_host(target: Target) -> None:
    """Regression: HAProxy's and Nagios' were refused."""
    with working(target) as server:
        assert server.http is not None
        for headers, status in ((b"", b"200"), (b"Host: evil.example\r\n", b"403"), (b"Host:\r\n", b"403")):
            with socket.create_connection((server.http.host, server.http.port), HANG) as connection:
                connection.sendall(b"GET /health HTTP/1.0\r\n" + headers + b"\r\n")
                assert connection.recv(100).split(b" ")[1] == status


def test_further_hosts_can_be_named() -> None:
    with serving(STORES, allowed_hosts=("gpu.example",)) as server:
        for headers in ({"Host": "GPU.example:80"}, {"Origin": "https://gpu.example"}, {"Host": "localhost"}):
            assert ask(server, "POST", "/v1/lookup", LOOKUP, headers)[0] == 200
        assert ask(server, "POST", "/v1/lookup", LOOKUP, {"Host": "b.gpu.example"})[0] == 403


def test_with_tokens_any_host_and_page_may_call(tmp_path: Path) -> None:
    token = add_token(tmp_path / "access.toml", "alice", {"default": Role.READ})
    headers = {"Host": "proxy.example", "Origin": "https://proxy.example"}
    with serving(STORES, access=tmp_path / "access.toml") as server:
        assert ask(server, "POST", "/v1/lookup", LOOKUP, headers)[0] == 401
        headers["Authorization"] = f"Bearer {token}"
        assert ask(server, "POST", "/v1/lookup", LOOKUP, headers)[0] == 200
    with serving(STORES, access=tmp_path / "access.toml", allowed_hosts=("gpu.example",)) as server:
        assert ask(server, "POST", "/v1/lookup", LOOKUP, headers)[0] == 403


@pytest.mark.parametrize(
    ("settings", "host", "origin"),
    [
        ({}, True, True),
        ({"access": Path("a")}, False, False),
        ({"http": Endpoint("10.0.0.5", 1), "insecure": True}, False, True),
        ({"http": Endpoint("10.0.0.5", 1), "insecure": True, "allowed_hosts": ("gpu.example",)}, True, True),
        ({"http": Endpoint("10.0.0.5", 1), "tls": TlsFiles("a", "b", "c")}, False, True),
        ({"access": Path("a"), "tls": TlsFiles("a", "b", "c")}, False, True),
    ],
    ids=["loopback", "tokens", "insecure", "insecure with hosts", "certificates", "tokens and certificates"],
)
def test_what_is_checked_follows_from_who_may_call(settings: dict[str, Any], host: bool, origin: bool) -> None:
    config = ServerConfig(**{"listen": (LOOPBACK,), "http": LOOPBACK, **settings})
    rules = config.host_rules()
    assert (rules.checks_host, rules.checks_origin) == (host, origin)
    assert rules.refusal("10.0.0.5:1", "http://10.0.0.5:1") is None or config.http == LOOPBACK


def test_a_page_may_call_the_host_that_it_is_from() -> None:
    rules = HostRules((), checks_host=False, checks_origin=True)
    assert rules.refusal("gpu.example:7701", "http://gpu.example:7701") is None
    assert rules.refusal("gpu.example:7701", "http://gpu.example:80") is not None


def test_a_refused_page_names_the_setting_that_lets_it_read_answers() -> None:
    """With ``allowed_host`` a worker would answer, and the browser would hide the answer."""
    config = ServerConfig((LOOPBACK,), http=LOOPBACK)
    refusals = [config.host_rules(*origins).refusal("localhost", "app://obsidian.md") for origins in ((), ((),))]
    assert [str(each).rpartition("; ")[2] for each in refusals] == [
        "name the page's host in allowed_host",
        "name the origin in cors_origin",
    ]
    assert config.host_rules(["app://obsidian.md"]).refusal("localhost", "app://obsidian.md") is None


@pytest.mark.parametrize("origin", ["null", "file://"])
def test_a_refused_page_in_a_file_is_not_sent_to_a_setting(origin: str) -> None:
    """No setting takes an origin without a host."""
    for origins in ((), ((),)):
        refusal = ServerConfig((LOOPBACK,), http=LOOPBACK).host_rules(*origins).refusal("localhost", origin)
        assert str(refusal).endswith("; open the page from a web server, as a file has no host")


def test_hosts_have_neither_scheme_nor_port() -> None:
    check_hosts(["gpu.example", "10.0.0.5", "fe80::1"])
    for wrong in ("https://gpu.example", "gpu.example:80", "[::1]", "GPU.example", "*", ""):
        with pytest.raises(InvalidArgument, match=r"allowed_host\[0\] is .*; write a name or an address in lower case"):
            check_hosts([wrong])
