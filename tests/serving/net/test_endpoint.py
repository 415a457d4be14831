"""Tests listening addresses: how they are parsed, and conflicts that are found before binding."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from suffolk.datastore.errors import (
    InvalidArgument,
    ResourceExhausted,
)
from suffolk.serving.net.endpoint import Endpoint, check_free, parse_endpoint


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


@pytest.mark.parametrize("host", ["999.1.1.1", "1.2.3", "[::zz]", "a b"])
def test_a_host_that_is_no_address_is_named(host: str) -> None:
    """Regression: the message was about TLS, or about the first connection."""
    with pytest.raises(InvalidArgument, match=f"^--listen: '{host.strip('[]')}' is no address; write one such as"):
        parse_endpoint(f"{host}:80", "--listen")


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


def test_only_a_stale_unix_socket_is_removed(tmp_path: Path) -> None:
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
