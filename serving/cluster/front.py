"""An HTTP application that forwards requests to the workers of a cluster: OpenAI's API on one address.

A request goes to the worker with the fewest running requests. If that worker cannot be reached, is full or stops, or if
it dies before the answer begins, another worker gets the request. A stream that has begun breaks with its worker.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from suffolk.datastore.errors import SuffolkError, Unavailable
from suffolk.serving.net.config import HostRules
from suffolk.serving.net.http_body import error_response, read_body
from suffolk.serving.net.http_middleware import HostMiddleware
from suffolk.serving.worker.openai.errors import error_body

Workers = Callable[[], Awaitable[list[str]]]
"""Gives the HTTP addresses of the workers that take requests now."""
MAX_BODY_BYTES = 64 << 20
WORKER_HEADER = "suffolk-worker"
"""Header of an answer: HOST:PORT of the worker that wrote it."""
WAIT_SECONDS = 60.0
"""Longest time that a request waits for a worker, for example while the only worker is replaced."""
_RETRY_SECONDS = 0.1
_CONNECT_SECONDS = 2.0
_MAX_LOST = 2
"""A request fails after this many workers died while they answered it, because the request itself may end workers."""
_REFUSALS = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""Statuses of a worker that has not begun to work on the request: the worker is full, or it stops."""
_HOP_HEADERS = ("connection", "keep-alive", "transfer-encoding", "content-length", "upgrade", "te", "trailer")


class Front:
    """Forwards requests. For one event loop."""

    def __init__(self, workers: Workers, https: ssl.SSLContext | None = None) -> None:
        """``workers``: called before every try. ``https``: TLS settings for calls of workers; None for plain HTTP."""
        self._workers = workers
        self._https = https
        self._running: Counter[str] = Counter()
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def forward(self, request: Request) -> Response:
        """Answer ``request`` by a worker. Raises Unavailable: no worker takes the request within WAIT_SECONDS, or the
        request ends workers."""
        body = await read_body(request, MAX_BODY_BYTES)
        end, lost, tried, full = time.monotonic() + WAIT_SECONDS, 0, set[str](), None
        while lost < _MAX_LOST:
            free = [each for each in await self._workers() if each not in tried]
            if free:
                worker = min(free, key=lambda each: self._running[each])
                tried.add(worker)
                try:
                    answer = await self._ask(worker, request, body)
                except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
                    continue  # the request has not reached the worker
                except (aiohttp.ClientError, ConnectionError):
                    lost += 1
                    continue
                if answer.status_code not in _REFUSALS:
                    return answer
                full = answer if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS else full
            elif full is not None:
                return full
            elif time.monotonic() > end:
                raise Unavailable("no worker takes requests; see 'suffolk cluster status', and try again")
            else:
                await asyncio.sleep(_RETRY_SECONDS)
                tried.clear()
        raise Unavailable("the workers that got this request have ended; see 'suffolk cluster status'")

    async def _ask(self, worker: str, request: Request, body: bytes) -> Response:
        """The answer of ``worker``. Raises aiohttp.ClientError, ConnectionError: the worker ended before the answer began."""
        self._session = self._session or aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            auto_decompress=False,
            connector=aiohttp.TCPConnector(limit=0, force_close=True, ssl=self._https or True),
        )
        self._running[worker] += 1
        try:
            address = f"{'https' if self._https else 'http'}://{worker}"
            url = f"{address}{request.url.path}{'?' if request.url.query else ''}{request.url.query}"
            answer = await self._session.request(request.method, url, data=body, headers=_kept(request.headers))
            headers = {**_kept(answer.headers), WORKER_HEADER: worker}
            if not answer.content_type.endswith("event-stream"):
                return Response(await answer.read(), answer.status, headers)
            first = await answer.content.readany()  # before this part, another worker may still get the request
            self._running[worker] += 1
            return _Relay(first, answer, headers, lambda: self._end(worker, answer))
        finally:
            self._running[worker] -= 1

    def _end(self, worker: str, answer: aiohttp.ClientResponse) -> None:
        self._running[worker] -= 1
        answer.close()


class _Relay(StreamingResponse):
    """Sends what a worker sends, as it arrives. A client that leaves ends the worker's request."""

    def __init__(
        self, first: bytes, answer: aiohttp.ClientResponse, headers: dict[str, str], end: Callable[[], None]
    ) -> None:
        super().__init__(_parts(first, answer), answer.status, headers)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


async def _parts(first: bytes, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    yield first
    async for part in answer.content.iter_any():
        yield part


def front_app(workers: Workers, hosts: HostRules, https: ssl.SSLContext | None = None) -> Starlette:
    """The application. It answers /livez, /readyz and /healthz itself, and forwards the rest to workers.

    ``hosts``: which requests of browsers are answered. Workers check too, but may listen on other addresses. ``https``:
    TLS settings for calls of workers; None for plain HTTP.
    """
    front = Front(workers, https)

    @asynccontextmanager
    async def closing(app: Starlette) -> AsyncIterator[None]:
        yield
        await front.close()

    async def alive(request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(request: Request) -> Response:
        found = await workers()
        return PlainTextResponse("ok\n") if found else PlainTextResponse("no worker takes requests\n", 503)

    def answer(request: Request, error: Exception) -> Response:
        return error_response(error, error_body)

    return Starlette(
        routes=[
            Route("/livez", alive),
            Route("/readyz", ready),
            Route("/healthz", ready),
            Route("/{path:path}", front.forward, methods=["GET", "POST", "OPTIONS"]),
        ],
        middleware=[Middleware(HostMiddleware, rules=hosts, error_body=error_body)],
        exception_handlers={SuffolkError: answer, HTTPException: answer},
        lifespan=closing,
    )


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_HEADERS}
