"""Refuses HTTP requests that a browser sends for a foreign web page."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from suffolk.serving.net.host_rules import HostRules
from suffolk.serving.net.http_errors import ErrorBody, error_response
from suffolk.serving.net.request_metrics import RequestMetrics


class HostMiddleware:
    """Answers requests that the rules refuse with 403."""

    def __init__(
        self,
        app: ASGIApp,
        rules: HostRules,
        error_body: ErrorBody,
        metrics: RequestMetrics | None = None,
        method_of: Callable[[Scope], str] = lambda scope: "other",
    ) -> None:
        """``metrics`` counts refusals, None for no count; ``method_of``: name of a request in the metrics."""
        self._app, self._rules, self._error_body = app, rules, error_body
        self._metrics, self._method_of = metrics, method_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            refusal = self._rules.refusal(headers.get("host", ""), headers.get("origin"))
            if refusal is not None:
                if self._metrics is not None:
                    self._metrics.count_refusal("http", self._method_of(scope), "PERMISSION_DENIED")
                answer = error_response(HTTPException(HTTPStatus.FORBIDDEN, refusal), self._error_body)
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)
