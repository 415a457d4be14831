"""What servers say about their state while they start, serve and stop."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from http.client import HTTPConnection

import openai
import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.net.http_app import starting_page
from suffolk.serving.net.http_body import plain_error
from suffolk.serving.store.draft_service.server import DraftServerConfig
from suffolk.serving.worker.openai.errors import error_body
from suffolk.serving.worker.openai.origins import allow_origins
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import LOOPBACK, check_health, connected, serving
from tests.support.waiting import HANG, until


def page(address: object, path: str = "/readyz") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=HANG) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_starting_server_answers_health_checks() -> None:
    with starting_page(LOOPBACK, "loading the model", plain_error) as address:
        for path in ("/readyz", "/healthz"):
            assert page(address, path) == (503, "starting: loading the model\n")
        assert page(address, "/livez") == (200, "ok\n")
    with pytest.raises(OSError, match="refused"):
        page(address)
    with starting_page(None, "loading the model", plain_error) as address:
        assert address is None


def test_a_starting_worker_answers_calls_in_the_form_of_its_errors() -> None:
    """Regression: the answer was a text, which clients of OpenAI's API cannot read."""
    with starting_page(LOOPBACK, "loading the model", error_body) as address:
        for path in ("/v1/models", "/v1/chat/completions", "/ready", "/health"):
            status, body = page(address, path)
            assert (status, json.loads(body)["error"]) == (
                503,
                {
                    "message": "starting: loading the model; try again later",
                    "type": "server_error",
                    "param": None,
                    "code": "unavailable",
                },
            )
        client = openai.OpenAI(api_key="none", base_url=f"http://{address}/v1", max_retries=0)
        with pytest.raises(openai.InternalServerError, match="starting: loading the model"):
            client.models.list()


def test_web_pages_can_read_that_a_worker_is_starting() -> None:
    """Regression: the answer had no headers of CORS, so that browsers showed a network error instead."""
    with starting_page(LOOPBACK, "loading the model", error_body, None, allow_origins(["http://page"])) as address:
        connection = HTTPConnection(str(address), timeout=HANG)
        for method, status in (("GET", 503), ("OPTIONS", 200)):
            headers = {"Origin": "http://page", "Access-Control-Request-Method": "POST"}
            connection.request(method, "/v1/models", headers=headers)
            reply = connection.getresponse()
            assert (reply.status, reply.getheader("access-control-allow-origin")) == (status, "http://page")
            reply.read()
        connection.close()


def test_a_draining_server_answers_calls_but_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    drained, sleep = threading.Event(), time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: drained.wait(seconds) if seconds == HANG else sleep(seconds))
    brute = BruteForceRetriever([[1, 2, 3]], 9)
    with serving({"wiki": brute}, drain=HANG) as server, connected(server) as remote:
        assert page(server.http) == (200, "ok\n")
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        until(lambda: page(server.http) == (503, "stopping\n"))
        assert check_health(server, "suffolk.v1.DraftService") == "NOT_SERVING"
        assert remote.lookup([1, 2]) == (2, 1)
        assert stopping.is_alive()
        drained.set()
        stopping.join(HANG)
        assert not stopping.is_alive()


def test_a_drain_out_of_range() -> None:
    with pytest.raises(InvalidArgument, match=r"drain is 601.0; it must be between 0 and 600"):
        DraftServerConfig((LOOPBACK,), drain=601)
