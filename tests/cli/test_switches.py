"""Tests the options of servers that are off by default where strangers can reach them."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.cli.server_options import is_on
from suffolk.serving.transport.config import ServerConfig
from suffolk.serving.transport.endpoint import Endpoint

LOCAL, REMOTE = Endpoint("127.0.0.1", 0), Endpoint("0.0.0.0", 0)


@pytest.mark.parametrize(
    ("listen", "http", "expected"),
    [(LOCAL, LOCAL, True), (REMOTE, LOCAL, False), (LOCAL, REMOTE, False), (LOCAL, None, True)],
)
def test_a_switch_is_off_where_strangers_can_reach_the_server(
    listen: Endpoint, http: Endpoint | None, expected: bool
) -> None:
    server = ServerConfig((listen,), http, insecure=True)
    assert is_on("auto", server, http, listen) is expected
    assert is_on("on", server, http, listen)
    assert not is_on("off", server, http, listen)


def test_a_switch_is_on_if_callers_are_known(tmp_path: Path) -> None:
    server = ServerConfig((REMOTE,), REMOTE, access=tmp_path / "access.toml", insecure=True)
    assert is_on("auto", server, REMOTE, REMOTE)
