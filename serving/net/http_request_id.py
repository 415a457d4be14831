"""Gives every HTTP request an id, and sends it back in the header X-Request-Id."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from suffolk.serving.net import tracing
from suffolk.serving.net.request_id import HEADER, begin_request


class RequestIds:
    """Middleware around all others. With tracing on, the request also has a span."""

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

        with tracing.server_span(f"{scope['method']} {scope['path']}", headers):
            await self._app(scope, receive, send_with_id)
