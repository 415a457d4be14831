"""The front: it forwards to the least busy worker, and goes to another one when a worker ends."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from suffolk.datastore.errors import PermissionDenied
from suffolk.serving.cluster import front
from suffolk.serving.cluster.config import WorkersConfig, front_rules
from suffolk.serving.cluster.front import WORKER_HEADER, front_app
from suffolk.serving.cluster.server_actor import server_facts
from suffolk.serving.cluster.server_client import ServerClient
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.config import HostRules
from suffolk.serving.net.endpoint import Endpoint
from suffolk.serving.net.identity import Role
from suffolk.serving.net.tls import TlsFiles
from tests.support.certificates import make_certificates, needs_openssl
from tests.support.worker_server import talking_target, working

BODY = {"model": "tiny", "prompt": "abcabc", "max_tokens": 12, "temperature": 0}


def closed_port() -> str:
    """An address that refuses connections."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


OPEN = HostRules((), checks_host=False, checks_origin=False)


async def asked(
    workers: list[str],
    body: dict[str, object],
    hosts: HostRules = OPEN,
    https: ssl.SSLContext | None = None,
    **headers: str,
) -> httpx2.Response:
    async def known() -> list[str]:
        return workers

    app = front_app(known, hosts, https)
    transport = httpx2.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client,
    ):
        return await client.post("/v1/completions", json=body, headers=headers)


@pytest.mark.parametrize(
    ("headers", "setting"),
    [({"host": "evil.example"}, "allowed_host"), ({"origin": "https://evil.example"}, "cors_origin")],
)
def test_foreign_pages_are_refused_before_a_worker_is_asked(headers: dict[str, str], setting: str) -> None:
    hosts = front_rules(Endpoint("127.0.0.1", 8000), {"insecure": True})
    refused = asyncio.run(asked([], BODY, hosts, **headers))
    assert refused.status_code == 403
    assert setting in refused.json()["error"]["message"]


class Ending:
    """A worker whose connection ends after some bytes of the answer."""

    def __init__(self, sent: bytes) -> None:
        self.sent, self.calls = sent, 0

    async def __aenter__(self) -> str:
        self.server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        return f"127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        self.server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.sent)
        writer.close()


def test_answers_are_those_of_the_worker() -> None:
    with working(talking_target()) as server:
        address = str(server.http)
        whole = asyncio.run(asked([closed_port(), address], BODY))
        stream = asyncio.run(asked([address], BODY | {"stream": True}))
        foreign = asyncio.run(asked([address], BODY, host="evil.example"))
        missing = asyncio.run(asked([address], {"model": "other", "prompt": "a"}))
    assert whole.status_code == 200
    assert whole.headers[WORKER_HEADER] == address
    parts = [line.removeprefix("data: ") for line in stream.text.split("\n\n") if line]
    assert parts[-1] == "[DONE]"
    text = "".join(json.loads(part)["choices"][0]["text"] for part in parts[:-1])
    assert text == whole.json()["choices"][0]["text"]
    assert foreign.status_code == 403  # the worker sees the client's Host
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99\r\n\r\n",
        b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n",
    ],
)
def test_another_worker_answers_when_one_ends_or_refuses(sent: bytes) -> None:
    async def both(address: str) -> tuple[httpx2.Response, int]:
        ending = Ending(sent)
        async with ending as dying:
            return await asked([dying, address], BODY), ending.calls

    with working(talking_target()) as server:
        answer, calls = asyncio.run(both(str(server.http)))
    assert (answer.status_code, calls) == (200, 1)


def test_a_request_that_ends_two_workers_is_not_tried_on_a_third() -> None:
    async def three() -> tuple[httpx2.Response, list[int]]:
        workers = [Ending(b"") for _ in range(3)]
        async with workers[0] as first, workers[1] as second, workers[2] as third:
            answer = await asked([first, second, third], BODY)
        return answer, [each.calls for each in workers]

    answer, calls = asyncio.run(three())
    assert (answer.status_code, calls) == (503, [1, 1, 0])
    assert "have ended" in answer.json()["error"]["message"]


def test_a_full_cluster_and_an_empty_one_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def full() -> httpx2.Response:
        async with Ending(b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n") as address:
            return await asked([address], BODY)

    assert asyncio.run(full()).status_code == 429
    monkeypatch.setattr(front, "WAIT_SECONDS", 0.0)
    answer = asyncio.run(asked([], BODY))
    assert answer.status_code == 503
    assert "no worker takes requests" in answer.json()["error"]["message"]


@needs_openssl
def test_workers_over_tls_get_the_token_of_the_caller_and_show_facts_to_that_of_the_cluster(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    caller, own = (add_token(tmp_path / "access.toml", name, {"default": Role.READ}) for name in ("ann", "cluster"))
    (tmp_path / "token").write_text(own)
    files = {name: str(tmp_path / file) for name, file in (("ca", "ca.pem"), ("token_file", "token"))}
    workers = WorkersConfig("/m", options={"tls_cert": "/c", "tls_key": "/k"}, client=ServerClient(**files))
    assert workers.https is not None
    trusted, unknown = workers.https.https(), ServerClient(ca=str(tmp_path / "stranger.pem")).https()
    tls = TlsFiles(str(tmp_path / "server.pem"), str(tmp_path / "server.key"))
    with working(talking_target(), tls=tls, access=tmp_path / "access.toml") as server:
        address = str(server.http)
        answer = asyncio.run(asked([address], BODY, https=trusted, authorization=f"Bearer {caller}"))
        assert answer.status_code == 200
        assert asyncio.run(asked([address], BODY, https=trusted)).status_code == 401  # never with the cluster's token
        assert server_facts("worker", workers.url(str(server.listening[0])))["slots"] == 2
        with pytest.raises(PermissionDenied):
            server_facts(
                "worker", replace(workers, client=replace(workers.client, token_file="")).url(str(server.listening[0]))
            )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(front, "WAIT_SECONDS", 0.0)
            assert asyncio.run(asked([address], BODY, https=unknown)).status_code == 503
