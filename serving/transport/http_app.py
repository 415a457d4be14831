"""The web application of a server: its own routes, and the pages that all servers have. Errors are JSON.

GET /livez    200 while the process runs            GET /metrics  Prometheus metrics
GET /readyz   200 while calls are accepted, or 503  GET /healthz  same as /readyz
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.transport.status import error_text, grpc_code, http_status

ErrorBody = Callable[[HTTPStatus, Exception], Mapping[str, Any]]
"""(status, SuffolkError or HTTPException) -> the JSON of the answer."""
_BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


def build_app(
    routes: Sequence[Route],
    exposition: Callable[[], bytes],
    ready: threading.Event,
    error_body: ErrorBody,
    middleware: Sequence[Middleware] = (),
) -> Starlette:
    """An application with ``routes`` and the pages of all servers.

    Args:
        exposition: returns the metrics in Prometheus' text format.
        ready: set while calls are accepted.
        error_body: converts errors of routes to JSON.
    """

    def answer(request: Request, error: Exception) -> Response:
        return error_response(error, error_body)

    return Starlette(
        routes=[*routes, *_pages(exposition, ready)],
        middleware=middleware,
        exception_handlers={SuffolkError: answer, HTTPException: answer, ClientDisconnect: _nothing},
    )


def error_response(error: Exception, error_body: ErrorBody) -> Response:
    """The answer for a SuffolkError or HTTPException.

    After an HTTPException the connection is closed, because the body may be unread.
    """
    if isinstance(error, SuffolkError):
        status, headers = http_status(error), {}
    else:
        assert isinstance(error, HTTPException)
        status, headers = HTTPStatus(error.status_code), {**(error.headers or {}), "Connection": "close"}
    if status in _BUSY:
        headers["Retry-After"] = "1"
    return JSONResponse(error_body(status, error), status, headers)


def plain_error(status: HTTPStatus, error: Exception) -> dict[str, Any]:
    """{"error": {"code": name of the gRPC code or of the HTTP status, "message"}}."""
    code = grpc_code(error).name if isinstance(error, SuffolkError) else status.name
    return {"error": {"code": code, "message": message(error)}}


def message(error: Exception) -> str:
    """The message of a SuffolkError or HTTPException."""
    return error_text(error) if isinstance(error, SuffolkError) else str(getattr(error, "detail", error))


def _pages(exposition: Callable[[], bytes], ready: threading.Event) -> list[Route]:
    async def livez(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        return PlainTextResponse("ok\n") if ready.is_set() else PlainTextResponse("not serving\n", 503)

    async def metrics(request: Request) -> Response:
        text = await asyncio.to_thread(exposition)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    pages = {"/livez": livez, "/readyz": readyz, "/healthz": readyz, "/metrics": metrics}
    return [Route(path, page) for path, page in pages.items()]


def _nothing(request: Request, error: Exception) -> Response:
    """Called if the client disconnects before its request is complete."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)
