"""What servers say about their state while they start, serve and stop."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

import pytest

from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.draft_service.server import DraftServerConfig
from suffolk.serving.transport.readiness import Readiness
from suffolk.serving.transport.starting_page import starting_page
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import LOOPBACK, check_health, connected, serving
from tests.support.waiting import HANG, until


def page(address: object, path: str = "/readyz") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=HANG) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_reasons() -> None:
    ready = Readiness()
    assert (ready.is_set(), ready.reason) == (False, "starting")
    ready.set()
    assert (ready.is_set(), ready.reason) == (True, "")
    ready.clear("the engine has died")
    ready.clear("stopping")
    assert (ready.is_set(), ready.reason) == (False, "the engine has died")


def test_a_starting_server_answers_health_checks() -> None:
    with starting_page(LOOPBACK, "loading the model") as address:
        for path in ("/readyz", "/healthz", "/ready", "/health"):
            assert page(address, path) == (503, "starting: loading the model\n")
        assert page(address, "/livez") == (200, "ok\n")
        assert page(address, "/v1/models")[0] == 503
    with pytest.raises(OSError, match="refused"):
        page(address)
    with starting_page(None, "loading the model") as address:
        assert address is None


def test_a_draining_server_answers_calls_but_is_not_ready() -> None:
    brute = BruteForceRetriever([[1, 2, 3]], 9)
    with serving({"wiki": brute}, drain=HANG) as server, connected(server) as remote:
        assert page(server.http) == (200, "ok\n")
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        until(lambda: page(server.http) == (503, "stopping\n"))
        assert check_health(server, "suffolk.v1.DraftService") == "NOT_SERVING"
        assert remote.lookup([1, 2]) == (2, 1)
        assert stopping.is_alive()
        server.end_drain()
        stopping.join(HANG)
        assert not stopping.is_alive()


def test_a_drain_out_of_range() -> None:
    with pytest.raises(InvalidArgument, match=r"drain is 601; it must be in 0\.\.600 seconds"):
        DraftServerConfig((LOOPBACK,), drain=601)
