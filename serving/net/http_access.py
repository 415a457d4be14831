"""Authenticates HTTP requests."""

from __future__ import annotations

from collections.abc import Callable, Collection
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from suffolk.datastore.errors import PermissionDenied
from suffolk.serving.net.authenticator import Authenticator
from suffolk.serving.net.http_errors import ErrorBody, error_response, message
from suffolk.serving.net.request_metrics import RequestMetrics
from suffolk.serving.net.usage import QuotaExceeded

OPEN_PATHS = ("/health", "/healthz", "/livez", "/ready", "/readyz")
"""Paths of every server that need no identity."""
SUBJECTS = "suffolk.subjects"
"""Key of the scope with the names in the client's certificate, which ``LimitedProtocol`` sets."""


class AccessMiddleware:
    """Answers requests without an identity with 401, and those beyond a quota with 429. Sets ``caller()`` for all others."""

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
                self._metrics.count_refusal("http", self._method_of(scope), "UNAUTHENTICATED")
                refusal = HTTPException(HTTPStatus.UNAUTHORIZED, message(error), {"WWW-Authenticate": "Bearer"})
                await error_response(refusal, self._error_body)(scope, receive, send)
                return
            except QuotaExceeded as error:
                self._metrics.count_refusal("http", self._method_of(scope), "RESOURCE_EXHAUSTED")
                await error_response(error, self._error_body)(scope, receive, send)
                return
            try:
                await self._app(scope, receive, send)
            finally:
                if usage is not None:
                    usage.end_call()
        else:
            await self._app(scope, receive, send)
