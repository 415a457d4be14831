"""Requests to the HTTP side of servers, without a client library."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any

from suffolk.serving.net.server import Server
from tests.support.waiting import HANG


def ask(
    server: Server, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
) -> tuple[int, dict[str, str], Any]:
    """Status, headers and body (parsed if it is JSON) of one request on a connection of its own."""
    assert server.http is not None
    connection = http.client.HTTPConnection(server.http.host, server.http.port, timeout=HANG)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method, path, data, {"Content-Type": "application/json"} | dict(headers or {}))
    reply = connection.getresponse()
    content, found = reply.read(), {key.lower(): value for key, value in reply.getheaders()}
    connection.close()
    return reply.status, found, json.loads(content) if found.get("content-type") == "application/json" else content
