"""Answers health checks while a server loads what it will serve."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from suffolk.datastore.errors import Unavailable
from suffolk.serving.net.endpoint import Endpoint, bind_error
from suffolk.serving.net.http_errors import ErrorBody, error_response
from suffolk.serving.net.http_server import HttpLimits, HttpServer
from suffolk.serving.net.tls import ServerTls, TlsFiles


@contextmanager
def starting_page(
    endpoint: Endpoint | None, work: str, error_body: ErrorBody, tls: TlsFiles | None = None
) -> Iterator[Endpoint | None]:
    """Answer at ``endpoint`` until the block ends: /livez with 200, everything else with 503 and ``work``, what is being done.

    The 503 is text for health checks, and the server's ``error_body`` for calls. Yields the bound endpoint. Raises as
    ``Server.start``.
    """
    if endpoint is None:
        yield None
        return

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await _answer(scope["path"], f"starting: {work}", error_body)(scope, receive, send)

    try:
        server = HttpServer(endpoint, answer, HttpLimits(), ServerTls(tls) if tls else None)
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
