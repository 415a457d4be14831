"""Valid and invalid calls of a draft service, for ``soak``."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from suffolk.datastore.context_query import ContextQuery
from suffolk.datastore.documents import Document
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.clients.breaker import CircuitBreaker
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.net.url import parse_url

DEADLINE = 5.0
GROUPS = 16
APPENDED = 256
"""Tokens of a document that is appended alone."""
LINE_TOKENS = 64


@dataclass
class Caller:
    """Calls of one server by several tenants, over gRPC and HTTP, with random tokens.

    Attributes:
        host, http: addresses of the server.
        folder: holds a file with the token of each tenant: acme may do everything, full has no calls left.
    """

    host: str
    http: str
    folder: Path
    vocab_size: int
    random: np.random.Generator

    def __post_init__(self) -> None:
        self._store = self._open("acme")

    def call(self) -> tuple[str, str]:
        """Make a random call. Returns its name, and the name of the error; "" if there is none."""
        name = str(self.random.choice(list(CALLS)))
        try:
            CALLS[name](self)
        except grpc.RpcError as error:
            return name, error.code().name
        except (SuffolkError, OSError, http.client.HTTPException) as error:
            return name, type(error).__name__
        return name, ""

    def close(self) -> None:
        self._store.close()

    def draft(self) -> None:
        self._store.draft_batch([self._tokens(16) for _ in range(8)], group=self._group())

    def lookup_both(self) -> None:
        with contextlib.closing(self._open("acme", "acme/files,acme/chat:3")) as both:
            both.info()
            both.lookup_batch([self._tokens(8)])

    def append(self) -> None:
        self._store.append(self._tokens(APPENDED), id="x", group=self._group(), replace=True)

    def append_alone(self) -> None:
        self._store.append(self._tokens(APPENDED), metadata={"n": 1})

    def append_stream(self) -> None:
        self._store.append_stream(Document(None, {}, self._tokens(64).astype(np.uint32)) for _ in range(4))

    def delete_group(self) -> None:
        self._store.delete(group=self._group())

    def counts(self) -> None:
        self._store.stats()
        self._store.group_stats(self._group())

    def wrong_fields(self) -> None:
        self._store.lookup([self.vocab_size])

    def unknown_name(self) -> None:
        with contextlib.closing(self._open("acme", "acme/none")) as other:
            other.info()

    def other_tenant(self) -> None:
        with contextlib.closing(self._open("full", "acme/chat")) as other:
            other.info()

    def no_message(self) -> None:
        with grpc.insecure_channel(self.host) as channel:
            draft: Any = channel.unary_unary("/suffolk.v1.DraftService/Draft")
            draft(b"\xff\xff", timeout=DEADLINE, metadata=[("authorization", f"Bearer {self._token('acme')}")])

    def given_up(self) -> None:
        self._store.draft_batch_future(ContextQuery([self._tokens(16) for _ in range(64)]))
        self.reconnect()

    def reconnect(self) -> None:
        self._store.close()
        self._store = self._open("acme")
        self._store.info()

    def http_draft(self) -> None:
        self._post(
            "/v1/draft", json.dumps({"contexts": [self._tokens(16).tolist()], "datastore": "acme/chat"}).encode()
        )

    def http_append(self) -> None:
        document = {"tokens": self._tokens(64).tolist(), "group": self._group()}
        self._post(
            "/v1/append", json.dumps({"documents": [document], "datastore": "acme/chat", "replace": True}).encode()
        )

    def http_stream(self) -> None:
        line = json.dumps({"tokens": self._tokens(LINE_TOKENS).tolist(), "group": self._group()}).encode() + b"\n"
        self._post("/v1/append_stream?datastore=acme/chat", line * 8)

    def http_wrong_stream(self) -> None:
        self._post("/v1/append_stream?datastore=acme/chat", b'{"tokens": [1]}\nnonsense\n')

    def http_nonsense(self) -> None:
        self._post("/v1/draft", b"{" * 100)

    def http_stranger(self) -> None:
        self._post("/v1/draft", b"{}", "suffolk_0_0")

    def http_half(self) -> None:
        host, _, port = self.http.rpartition(":")
        with socket.create_connection((host, int(port)), DEADLINE) as connection:
            connection.sendall(b"POST /v1/draft HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")

    def metrics(self) -> None:
        self._get("/metrics")

    def _open(self, tenant: str, name: str = "acme/chat") -> RemoteDatastore:
        url = f"grpc://{self.host}/{name}?token_file={self.folder / tenant}"
        return RemoteDatastore(url, parse_url(url), DEADLINE, CircuitBreaker(1 << 60))

    def _tokens(self, size: int) -> np.ndarray[Any, np.dtype[np.int32]]:
        return self.random.integers(0, self.vocab_size, size, np.int32)

    def _group(self) -> str:
        return f"g{self.random.integers(GROUPS)}"

    def _post(self, path: str, body: bytes, token: str | None = None) -> None:
        self._ask("POST", path, body, token or self._token("acme"))

    def _get(self, path: str) -> None:
        self._ask("GET", path, None, self._token("operator"))

    def _token(self, tenant: str) -> str:
        return (self.folder / tenant).read_text().strip()

    def _ask(self, method: str, path: str, body: bytes | None, token: str) -> None:
        with contextlib.closing(http.client.HTTPConnection(self.http, timeout=DEADLINE)) as connection:
            connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
            reply = connection.getresponse()
            reply.read()
            if reply.status >= 400:
                raise http.client.HTTPException(f"status {reply.status}")


CALLS: dict[str, Callable[[Caller], None]] = {
    name: method for name, method in vars(Caller).items() if not name.startswith("_") and name not in ("call", "close")
}
"""All calls by name."""
