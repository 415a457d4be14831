"""The web application of a server: its own routes, and the pages that all servers have. Errors are JSON.

GET /livez    200 while the process runs            GET /metrics  Prometheus metrics
GET /readyz   200 while calls are accepted, or 503  GET /healthz  same as /readyz; the body says why not

Health needs no identity. Metrics need the role read in every tenant.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from suffolk.datastore.errors import SuffolkError, Unavailable
from suffolk.serving.net.admission import Readiness
from suffolk.serving.net.authenticator import Authenticator
from suffolk.serving.net.config import HostRules
from suffolk.serving.net.endpoint import Endpoint, bind_error
from suffolk.serving.net.http_body import ErrorBody, error_response
from suffolk.serving.net.http_middleware import AccessMiddleware, HostMiddleware, PlainPaths, RequestIds
from suffolk.serving.net.http_server import HttpLimits, HttpServer
from suffolk.serving.net.identity import EVERY_TENANT, Role, caller
from suffolk.serving.net.metrics import RequestMetrics
from suffolk.serving.net.tls import ServerTls, TlsFiles

_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
"""A part of a path that varies, as Starlette writes it. Messages show it as NAME."""
_NOT_SERVED = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)


def build_app(
    routes: Sequence[Route],
    metrics: RequestMetrics,
    ready: Readiness,
    error_body: ErrorBody,
    authenticator: Authenticator,
    hosts: HostRules,
    middleware: Sequence[Middleware] = (),
    open_routes: Sequence[Route] = (),
) -> Starlette:
    """An application with ``routes`` and the pages of all servers.

    Args:
        metrics: counts requests that are refused before they reach a route. A route's name is the label ``method``.
        ready: set while calls are accepted.
        error_body: converts errors of routes to JSON.
        authenticator: finds the caller of a request.
        hosts: which requests of browsers are answered.
        middleware: runs before the caller is known.
        open_routes: further routes that need no identity.
    """

    def answer(request: Request, error: Exception) -> Response:
        return error_response(_explained(request, error, routes), error_body)

    routes = [*routes, *_pages(metrics, ready)]
    refusals: dict[str, Any] = {"error_body": error_body, "metrics": metrics, "method_of": partial(_method_of, routes)}
    open_paths = [route.path for route in open_routes]
    return Starlette(
        routes=[*routes, *open_routes],
        middleware=[
            Middleware(PlainPaths),
            Middleware(RequestIds),
            Middleware(HostMiddleware, rules=hosts, **refusals),
            *middleware,
            Middleware(AccessMiddleware, authenticator=authenticator, open_paths=open_paths, **refusals),
        ],
        exception_handlers={SuffolkError: answer, HTTPException: answer, ClientDisconnect: _nothing},
    )


def _explained(request: Request, error: Exception, routes: Sequence[Route]) -> Exception:
    """``error``; if the path is not served, an error whose message lists the paths of ``routes``."""
    if not isinstance(error, HTTPException) or error.status_code not in _NOT_SERVED:
        return error
    methods = {route.path: "POST" if "POST" in (route.methods or ()) else "GET" for route in routes}
    paths = ", ".join(
        f"{method} {_PARAMETER.sub(lambda found: found[1].upper(), path)}" for path, method in methods.items()
    )
    text = f"{request.method} {request.url.path} is not served here; the paths are {paths}"
    return HTTPException(error.status_code, text, error.headers)


def _method_of(routes: Sequence[Route], scope: Scope) -> str:
    """The name of the route that answers a path; "other" if there is none."""
    return next((route.name for route in routes if route.path_regex.match(scope["path"])), "other")


def _pages(request_metrics: RequestMetrics, ready: Readiness) -> list[Route]:
    async def livez(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(request: Request) -> Response:
        return PlainTextResponse("ok\n") if ready.is_set() else PlainTextResponse(f"{ready.reason}\n", 503)

    async def metrics(request: Request) -> Response:
        with request_metrics.count_refusals("http", "metrics"):
            caller().require(EVERY_TENANT, Role.READ)  # metrics count the calls of all tenants
        text = await asyncio.to_thread(request_metrics.exposition)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    pages = {"/livez": livez, "/readyz": readyz, "/healthz": readyz, "/metrics": metrics}
    return [Route(path, page) for path, page in pages.items()]


def _nothing(request: Request, error: Exception) -> Response:
    """Called if the client disconnects before its request is complete."""
    return Response(status_code=HTTPStatus.BAD_REQUEST)


@contextmanager
def starting_page(
    endpoint: Endpoint | None,
    work: str,
    error_body: ErrorBody,
    tls: TlsFiles | None = None,
    middleware: Sequence[Middleware] = (),
) -> Iterator[Endpoint | None]:
    """Answer at ``endpoint`` until the block ends: /livez with 200, everything else with 503 and the text ``work``,
    which names the work in progress.

    The 503 is text for health checks, and the server's ``error_body`` for calls. ``middleware`` runs before it. Yields the
    bound endpoint. Raises the errors of ``Server.start``.
    """
    if endpoint is None:
        yield None
        return

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await _answer(scope["path"], f"starting: {work}", error_body)(scope, receive, send)

    app: ASGIApp = answer
    for layer, args, kwargs in reversed(middleware):
        app = layer(app, *args, **kwargs)
    try:
        server = HttpServer(endpoint, app, HttpLimits(), ServerTls(tls) if tls else None, error_body)
    except OSError as error:
        raise bind_error(endpoint, "--http", error) from None
    thread = threading.Thread(target=server.run, name="starting-page", daemon=True)
    thread.start()
    try:
        yield server.endpoint
    finally:
        server.stop(0)
        thread.join()


def _answer(path: str, state: str, error_body: ErrorBody) -> Response:
    if path == "/livez":
        return PlainTextResponse("ok\n")
    if path in ("/readyz", "/healthz"):
        return PlainTextResponse(f"{state}\n", 503)
    return error_response(Unavailable(f"{state}; try again later"), error_body)
