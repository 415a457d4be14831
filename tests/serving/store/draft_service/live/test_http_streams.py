"""Documents appended from one HTTP body of any length."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from suffolk.datastore import limits
from suffolk.serving.net import http_body
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.http_server import HttpLimits
from suffolk.serving.net.identity import OPERATOR, Role
from suffolk.serving.store.draft_service import streams
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.store.live_store.store import LiveStore
from tests.support.callers import acting_as
from tests.support.draft_server import VOCABULARY, serving
from tests.support.http_requests import ask
from tests.support.waiting import HANG, until

PATH = "/v1/append_stream?datastore=chat"
LINE = b'{"tokens": [1, 2, 3]}\n'


def post(server: DraftServer, parts: Iterable[bytes], path: str = PATH) -> tuple[int, dict[str, Any]]:
    """Status and answer of a body that is sent in chunks."""
    assert server.http is not None
    connection = http.client.HTTPConnection(server.http.host, server.http.port, timeout=HANG)
    connection.request("POST", path, iter(parts), {"Content-Type": "application/x-ndjson"}, encode_chunked=True)
    reply = connection.getresponse()
    found = reply.status, json.loads(reply.read())
    connection.close()
    return found


def open_stream(server: DraftServer) -> socket.socket:
    """A stream that has sent one line, and stays open."""
    assert server.http is not None
    opened = socket.create_connection((server.http.host, server.http.port), HANG)
    opened.sendall(f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
    opened.sendall(b"%x\r\n%s\r\n" % (len(LINE), LINE))
    return opened


def test_lines_are_appended_as_they_come(server: DraftServer, store: LiveStore) -> None:
    def parts() -> Iterator[bytes]:
        yield b'{"tokens": [1, 2], "id": "a", "metadata": {"n": 1}}\n\n{"tok'
        until(lambda: store.stats().documents == 1)
        yield b'ens": [3, 4], "group": "h"}\r\n{"tokens": [5]}'

    status, reply = post(server, parts(), f"{PATH}&group=g")
    appended = {"sequence": 1, "documents": 3, "tokens": 5, "replaced": 0, "durable": False}
    assert (status, reply) == (200, {"lines": 4, "appended": appended})
    assert (store.group_stats("g").documents, store.group_stats("h").documents) == (2, 1)
    assert store.delete(where=["n=1"]).unknown_ids == ()
    assert store.stats().documents == 2


def test_curl_sends_a_file_of_any_length(server: DraftServer, store: LiveStore, tmp_path: Path) -> None:
    count, line = 400, json.dumps({"tokens": [1, 2, 3] * 2500}).encode() + b"\n"
    assert count * len(line) > 2 * limits.MAX_REQUEST_BYTES
    (tmp_path / "lines").write_bytes(line * count)
    command = ("curl", "-s", "-X", "POST", "-T", str(tmp_path / "lines"), f"http://{server.http}{PATH}")
    reply = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=HANG).stdout)
    assert (reply["lines"], reply["appended"]["documents"], reply["appended"]["tokens"]) == (count, count, 7500 * count)
    assert store.lookup([1, 2, 3]).count == 2500 * count


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"nonsense", "line 3: body: not JSON"),
        (b'{"tokens": [1], "txt": "a"}', "line 3: txt: unknown key"),
        (b'{"tokens": [1], "text": "a"}', "line 3: document: give either tokens or text"),
        (b'{"tokens": [1.5]}', "line 3: tokens[0] is 1.5; it must be a whole number"),
        (b'{"tokens": [1]}, {"tokens": [2]}', "line 3: body: not JSON"),
        (b'{"tokens": [1]\n"id": "a"}', "line 3: body: not JSON"),
        (b'{"tokens": [%d]}' % VOCABULARY, f"lines 3 to 4: document 0 has token id {VOCABULARY}"),
    ],
)
def test_a_failure_says_what_was_appended(line: bytes, text: str, server: DraftServer, store: LiveStore) -> None:
    def parts() -> Iterator[bytes]:
        yield LINE * 2
        until(lambda: store.stats().documents == 2)
        yield line + b"\n" + LINE

    status, reply = post(server, parts())
    assert status == 400
    assert reply["error"]["code"] == "INVALID_ARGUMENT"
    assert reply["error"]["message"].startswith(text)
    assert reply["error"]["message"].endswith("; the 2 lines before are appended")
    assert (reply["lines"], reply["appended"]["documents"], store.stats().documents) == (2, 2, 2)


def test_the_rest_of_a_whole_body_is_not_waited_for(server: DraftServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: an error used to be answered a second late."""
    monkeypatch.setattr(http_body, "_DISCARD_SECONDS", 2 * HANG)
    assert post(server, [b"nonsense"])[0] == 400


def test_streams_that_cannot_be_read(server: DraftServer, store: LiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, status, text in (
        (PATH.replace("chat", "none"), 404, "there is no 'none'"),
        (PATH.replace("chat", "team/ids"), 501, "datastore team/ids takes no documents"),
        (PATH, 400, "the body has no line; send at least one document"),
    ):
        found, reply = post(server, [] if status == 400 else [LINE], path)
        assert (found, reply["lines"], reply["appended"]) == (status, 0, None)
        assert text in reply["error"]["message"]
    monkeypatch.setattr(limits, "MAX_REQUEST_BYTES", 2000)

    def long_line() -> Iterator[bytes]:
        yield LINE
        until(lambda: store.stats().documents == 1)
        yield from (b"1, " * 100 for _ in range(20))

    status, reply = post(server, long_line())
    assert (status, reply["lines"]) == (400, 1)
    assert "a line has more than 2000 bytes, the limit; split the document" in reply["error"]["message"]


def test_a_silent_stream_ends(server: DraftServer, store: LiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STREAM_SECONDS", 1)
    opened = open_stream(server)
    with opened, opened.makefile("rb") as answer:
        reply = answer.read()  # the server closes the connection
    assert reply.startswith(b"HTTP/1.1 504 ")
    assert b"no line was complete within 1 seconds; send lines faster; the 1 lines before are appended" in reply
    assert store.stats().documents == 1


def test_a_broken_stream_keeps_what_came_before(server: DraftServer, store: LiveStore) -> None:
    open_stream(server).close()
    until(lambda: store.stats().documents == 1)
    assert post(server, [LINE])[0] == 200


def test_a_stream_that_waits_for_its_turn_is_not_cut_off(
    server: DraftServer, store: LiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: a connection counted as silent while the server did not read it."""
    monkeypatch.setattr(DraftServer, "http_limits", lambda server: HttpLimits(read_seconds=0.2))
    held, handle_call = threading.Event(), server.service.handle_call

    def slowly(*args: Any) -> Any:
        held.wait(0.5)
        return handle_call(*args)

    with serving({"chat": store}) as quick:
        monkeypatch.setattr(quick.service, "handle_call", slowly)
        status, reply = post(quick, [LINE, LINE * 20_000])
    assert (status, reply["lines"]) == (200, 20_001)


def test_places_are_shared_with_grpc_streams_and_need_the_role(store: LiveStore, tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    reader, writer = (
        {"Authorization": f"Bearer {add_token(access, str(role), {'default': role})}"}
        for role in (Role.READ, Role.APPEND)
    )
    with serving({"chat": store}, access=access) as server:
        status, _, reply = ask(server, "POST", PATH, LINE, reader)
        assert (status, reply["error"]["code"]) == (403, "PERMISSION_DENIED")
        assert ask(server, "POST", PATH, LINE, writer)[0] == 200
        with ExitStack() as stack:
            stack.enter_context(acting_as(OPERATOR))
            for _ in range(streams.MAX_STREAMS):
                stack.enter_context(server.service.streams.take("grpc"))
            status, headers, reply = ask(server, "POST", PATH, LINE, writer)
        assert (status, headers["retry-after"]) == (429, "1")
        assert "the server already reads 4 streams, its limit; try again later or" in reply["error"]["message"]
        assert 'method="AppendStream",tenant="default",transport="http"' in server.service.metrics.exposition().decode()
        assert ask(server, "POST", PATH, LINE, writer)[0] == 200
