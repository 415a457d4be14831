"""Middleware of every HTTP request: gives it an id, checks its host, and finds its caller."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from suffolk.datastore.errors import PermissionDenied
from suffolk.serving.net.authenticator import Authenticator
from suffolk.serving.net.config import HostRules
from suffolk.serving.net.http_body import ErrorBody, error_response, message
from suffolk.serving.net.metrics import RequestMetrics
from suffolk.serving.net.quota import QuotaExceeded
from suffolk.serving.net.tracing import HEADER, begin_request, server_span

OPEN_PATHS = ("/health", "/healthz", "/livez", "/ready", "/readyz")
"""Paths of every server that need no identity."""
_AUTHORITY = re.compile(r"https?://[^/]*", re.IGNORECASE)
"""The part before the path, if the target of a request is a whole URL (RFC 9112, 3.2.2), as for a proxy."""
_SLASHES = re.compile("//+")
"""Several slashes, sent by clients that join a path to a base URL with a slash at its end."""
SUBJECTS = "suffolk.subjects"
"""Key of the scope with the names in the client's certificate, which ``LimitedProtocol`` sets."""


class PlainPaths:
    """Removes slashes at the end of a path, repeated slashes, and the part of a whole URL before the path. It does not use a
    redirect, because this would lose the prefix that a proxy has removed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = _AUTHORITY.sub("", scope["path"], 1)
            scope = {**scope, "path": "/" + _SLASHES.sub("/", path).strip("/")}
        await self._app(scope, receive, send)


class RequestIds:
    """The outermost middleware: gives each request an id. With tracing on, the request also has a span."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        name = begin_request(headers.get(HEADER))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = name
            await send(message)

        with server_span(f"{scope['method']} {scope['path']}", headers):
            await self._app(scope, receive, send_with_id)


class HostMiddleware:
    """Answers with 403 if the rules refuse a request."""

    def __init__(
        self,
        app: ASGIApp,
        rules: HostRules,
        error_body: ErrorBody,
        metrics: RequestMetrics | None = None,
        method_of: Callable[[Scope], str] = lambda scope: "other",
    ) -> None:
        """``metrics``: counts refusals; None: they are not counted. ``method_of``: name of a request in the metrics."""
        self._app, self._rules, self._error_body = app, rules, error_body
        self._metrics, self._method_of = metrics, method_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            refusal = self._rules.refusal(headers.get("host"), headers.get("origin"))
            if refusal is not None:
                if self._metrics is not None:
                    self._metrics.count_answer("http", self._method_of(scope), "PERMISSION_DENIED")
                answer = error_response(HTTPException(HTTPStatus.FORBIDDEN, refusal), self._error_body)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


class AccessMiddleware:
    """Answers requests without an identity with 401, and requests beyond a quota with 429. Sets ``caller()`` for all other
    requests."""

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        error_body: ErrorBody,
        metrics: RequestMetrics,
        method_of: Callable[[Scope], str],
        open_paths: Collection[str] = (),
    ) -> None:
        """
        Args:
            metrics: counts refusals.
            method_of: name of a request in the metrics.
            open_paths: paths that need no identity, in addition to OPEN_PATHS.
        """
        self._app, self._authenticator, self._error_body = app, authenticator, error_body
        self._metrics, self._method_of = metrics, method_of
        self._open_paths = frozenset((*OPEN_PATHS, *open_paths))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._open_paths:
            subjects: Collection[str] = scope.get(SUBJECTS, ())
            try:
                usage = self._authenticator.admit(Headers(scope=scope).get("authorization", ""), subjects)
            except PermissionDenied as error:
                self._metrics.count_answer("http", self._method_of(scope), "UNAUTHENTICATED")
                refusal = HTTPException(HTTPStatus.UNAUTHORIZED, message(error), {"WWW-Authenticate": "Bearer"})
                await error_response(refusal, self._error_body)(scope, receive, send)
                return
            except QuotaExceeded as error:
                self._metrics.count_answer("http", self._method_of(scope), "RESOURCE_EXHAUSTED")
                await error_response(error, self._error_body)(scope, receive, send)
                return
            try:
                await self._app(scope, receive, send)
            finally:
                if usage is not None:
                    usage.end_call()
        else:
            await self._app(scope, receive, send)
