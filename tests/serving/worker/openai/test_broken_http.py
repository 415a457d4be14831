"""Requests that are not HTTP get an error in OpenAI's form."""

from __future__ import annotations

import json
import socket

import pytest

from suffolk.serving.worker.server import WorkerServer
from tests.support.waiting import HANG

POST = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("request_text", "reason"),
    [
        ("NONSENSE\r\n\r\n", "illegal request line"),
        (f"{POST}Content-Length: ten\r\n\r\n", "bad Content-Length"),
        (f"{POST}X-Long: {'x' * 70_000}", "buffer too long"),
        (f"{POST}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "illegal chunk header"),
        (f"{POST}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "send one of them"),
    ],
)
def test_broken_requests_get_an_error_in_openais_form(server: WorkerServer, request_text: str, reason: str) -> None:
    """Regression: the answer was a plain text that did not say what was wrong."""
    assert server.http is not None
    with socket.create_connection((server.http.host, server.http.port), HANG) as connection:
        connection.sendall(request_text.encode())
        answer = b""
        while part := connection.recv(1 << 16):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    error = json.loads(body)["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert reason in error["message"]
