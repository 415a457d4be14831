"""Logs as text and as JSON."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from suffolk.serving.net.identity import Identity
from suffolk.serving.net.logs import REQUESTS, JsonFormatter, configure_logs, log_call
from suffolk.serving.net.tracing import _REQUEST_ID, begin_request, request_id
from tests.support.callers import acting_as


@pytest.fixture(autouse=True)
def _request() -> Iterator[None]:
    """Restore the request id of the main thread."""
    token = _REQUEST_ID.set("")
    yield
    _REQUEST_ID.reset(token)


@contextmanager
def configured(form: str = "text", requests: bool = False) -> Iterator[None]:
    """Logs as in a new process; the handlers and levels of pytest are restored at the end."""
    root = logging.getLogger()
    levels = {logger: logger.level for logger in (root, REQUESTS)}
    handlers, root.handlers = root.handlers, []
    try:
        configure_logs(form, requests)
        yield
    finally:
        root.handlers = handlers
        for logger, level in levels.items():
            logger.setLevel(level)


def fail() -> None:
    try:
        raise RuntimeError("broken\nhere")
    except RuntimeError:
        logging.getLogger("suffolk.server").exception("it failed")


def test_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    begin_request("abc-1")
    with configured("json", requests=True):
        with acting_as(Identity("robot", {})):
            log_call("grpc", "Draft", "OK", 0.0123456)
        fail()
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first.pop("time").endswith("+00:00")
    assert first == {
        "level": "info",
        "logger": "suffolk.requests",
        "message": "Draft over grpc: OK in 12.3 ms, request abc-1",
        "request_id": "abc-1",
        "transport": "grpc",
        "method": "Draft",
        "code": "OK",
        "milliseconds": 12.346,
        "caller": "robot",
    }
    assert (second["level"], second["message"]) == ("error", "it failed")
    assert "RuntimeError: broken\nhere" in second["exception"]


def test_lines_of_text_without_requests(capsys: pytest.CaptureFixture[str]) -> None:
    with configured():
        log_call("grpc", "Draft", "OK", 0.01)
        logging.getLogger("suffolk.server").info("hello")
    assert capsys.readouterr().err == "suffolk: hello\n"


def test_request_ids() -> None:
    assert begin_request("a/b:c=1.2_3") == request_id() == "a/b:c=1.2_3"
    for wrong in (None, "", "two words", "x" * 129, "line\nbreak", '{"a"}'):
        assert len(begin_request(wrong)) == 16
    record = logging.LogRecord("x", logging.INFO, "", 1, "%s", ("a",), sys.exc_info())
    assert json.loads(JsonFormatter().format(record))["request_id"] == request_id()
