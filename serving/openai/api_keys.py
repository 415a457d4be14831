"""API keys: a middleware that rejects requests without one."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from suffolk.serving.openai.errors import error_body
from suffolk.serving.transport.http_app import error_response

OPEN_PATHS = ("/health", "/healthz", "/livez", "/metrics", "/ready", "/readyz", "/version")
"""Paths that are answered without a key."""


class ApiKeys:
    """Answers 401 unless the Authorization header has one of ``keys``. Without ``keys``, all requests pass."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or self._allows(Request(scope)):
            await self._app(scope, receive, send)
            return
        error = HTTPException(
            HTTPStatus.UNAUTHORIZED, "the API key is missing or wrong; send 'Authorization: Bearer KEY'"
        )
        response = error_response(error, error_body)
        response.headers["WWW-Authenticate"] = "Bearer"
        await response(scope, receive, send)

    def _allows(self, request: Request) -> bool:
        if not self._digests:
            return True
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        digest = _digest(key.strip())
        found = [hmac.compare_digest(digest, each) for each in self._digests]  # compare with all keys, in constant time
        return scheme.lower() == "bearer" and any(found)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
