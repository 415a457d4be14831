"""Authenticates HTTP requests."""

from __future__ import annotations

from collections.abc import Collection
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from suffolk.datastore.errors import PermissionDenied
from suffolk.serving.transport.authenticator import Authenticator
from suffolk.serving.transport.http_errors import ErrorBody, error_response, message
from suffolk.serving.transport.identity import set_caller

OPEN_PATHS = ("/health", "/healthz", "/livez", "/ready", "/readyz")
"""Paths that need no identity."""
SUBJECTS = "suffolk.subjects"
"""Key of the scope with the names in the client's certificate, which ``LimitedProtocol`` sets."""


class AccessMiddleware:
    """Answers requests without an identity with 401, and sets ``caller()`` for all others."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator, error_body: ErrorBody) -> None:
        self._app, self._authenticator, self._error_body = app, authenticator, error_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            subjects: Collection[str] = scope.get(SUBJECTS, ())
            try:
                set_caller(self._authenticator.identify(Headers(scope=scope).get("authorization", ""), subjects))
            except PermissionDenied as error:
                refusal = HTTPException(HTTPStatus.UNAUTHORIZED, message(error))
                response = error_response(refusal, self._error_body)
                response.headers["WWW-Authenticate"] = "Bearer"
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)
