"""An HTTP server reads a bounded number of bytes a second, whatever is sent."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from suffolk.datastore.errors import ResourceExhausted
from suffolk.serving.net import http_server
from suffolk.serving.net.endpoint import Endpoint, check_free
from suffolk.serving.net.http_server import HttpLimits, HttpServer
from tests.support.waiting import HANG

MIB = 1 << 20
BUFFERS = 32 * MIB
"""More than the kernel keeps for a connection."""


@contextmanager
def serving(
    monkeypatch: pytest.MonkeyPatch, rate: float, limits: HttpLimits | None = None
) -> Iterator[tuple[str, int]]:
    """The address of a server that answers with the size of a body: 0 at once, and at /size after it has read the body."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        size = len(await Request(scope, receive).body()) if scope["path"] == "/size" else 0
        await PlainTextResponse(str(size))(scope, receive, send)

    monkeypatch.setattr(http_server, "READ_RATE", rate)
    monkeypatch.setattr(http_server, "READ_BURST", MIB)
    server = HttpServer(Endpoint("127.0.0.1", 0), answer, limits or HttpLimits())
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server.endpoint.host, server.endpoint.port
    finally:
        server.stop(0)
        thread.join(HANG)


@pytest.mark.parametrize("part", [MIB, 1 << 15])
def test_an_answered_request_cannot_keep_the_server_reading(monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    """Regression: a body that nobody reads was read as fast as it came, endlessly, and delayed all others."""
    with serving(monkeypatch, rate=1) as address, socket.create_connection(address) as sender:
        sender.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert sender.recv(MIB).startswith(b"HTTP/1.1 200")
        sender.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < BUFFERS:
                sender.sendall(b"%x\r\n%s\r\n" % (part, bytes(part)))
                sent += part
        assert sent < BUFFERS
        with socket.create_connection(address, HANG) as other:  # in one part: the second one would wait for the pace
            other.sendall(b"POST /size HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\nsmall")
            assert other.makefile("rb").read().endswith(b"\r\n\r\n5")


def test_large_bodies_beyond_the_burst_arrive_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(monkeypatch, rate=16 * MIB) as address:
        connection = http.client.HTTPConnection(*address, timeout=HANG)
        for size in (3 * MIB, 1, 3 * MIB):
            connection.request("POST", "/size", bytes(size))
            assert int(connection.getresponse().read()) == size
        connection.close()


def ask(client: http.client.HTTPConnection) -> int:
    client.request("GET", "/")
    answer = client.getresponse()
    answer.read()
    return answer.status


def test_a_connection_may_be_idle_for_longer_than_a_request_may_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: pools of clients and proxies, which keep connections for a minute, met the end of theirs after five seconds."""
    assert HttpLimits().idle_seconds > 90
    limits = HttpLimits(read_seconds=0.2, idle_seconds=HANG)
    with serving(monkeypatch, 16 * MIB, limits) as address:
        client = http.client.HTTPConnection(*address, timeout=HANG)
        assert ask(client) == 200
        first = client.sock
        time.sleep(0.5)
        assert ask(client) == 200
        assert client.sock is first
        first.sendall(b"GET /")
        assert first.recv(12) == b"HTTP/1.1 408"
        client.close()


@pytest.mark.parametrize(("path", "begin"), [("/size", b"HTTP/1.1 408 Request Timeout"), ("/", b"HTTP/1.1 200 OK")])
def test_an_upload_that_stops_gets_one_answer(monkeypatch: pytest.MonkeyPatch, path: str, begin: bytes) -> None:
    """Regression: the connection ended without an answer."""
    limits = HttpLimits(read_seconds=0.2)
    answer = b""
    with serving(monkeypatch, 16 * MIB, limits) as address, socket.create_connection(address, HANG) as stopped:
        stopped.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\npart".encode())
        with contextlib.suppress(ConnectionResetError):
            while part := stopped.recv(MIB):
                answer += part
    assert answer.startswith(begin)
    assert answer.count(b"HTTP/1.1") == 1
    assert (b'"message": "the rest of the request did not come in time' in answer) == (b" 408 " in begin)


def test_a_new_connection_takes_the_place_of_the_longest_idle_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not of the oldest one, which a pool uses the most."""
    with serving(monkeypatch, 16 * MIB, HttpLimits(connections=2)) as address:
        first, second, third = (http.client.HTTPConnection(*address, timeout=HANG) for _ in range(3))
        assert [ask(client) for client in (first, second, first)] == [200, 200, 200]
        kept = first.sock
        assert [ask(client) for client in (third, first)] == [200, 200]
        assert first.sock is kept
        with pytest.raises(OSError):  # noqa: PT011  one of several
            ask(second)
        for client in (first, second, third):
            client.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("name", ["::", "localhost"])
def test_a_name_of_several_addresses_listens_on_both_families(name: str) -> None:
    """Regression: [::] and localhost refused one of them, which gRPC takes there."""
    server = HttpServer(Endpoint(name, 0), PlainTextResponse(""), HttpLimits())
    try:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, server.endpoint.port), HANG).close()
    finally:
        server.close()


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_port_is_taken_if_either_address_of_localhost_is() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as other:
        endpoint = Endpoint("localhost", other.getsockname()[1])
        with pytest.raises(ResourceExhausted, match="in use by another process"):
            check_free(endpoint, "--http")
        with pytest.raises(OSError, match="Address already in use"):
            HttpServer(endpoint, PlainTextResponse(""), HttpLimits())
