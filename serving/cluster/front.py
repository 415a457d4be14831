"""An HTTP application that forwards requests to the workers of a cluster: OpenAI's API on one address.

A request goes to the worker with the fewest running requests. If that worker cannot be reached or is stopping, another
one gets it. An answer that has begun is not begun again: its stream breaks if its worker dies.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus

import aiohttp
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from suffolk.datastore.errors import SuffolkError, Unavailable
from suffolk.serving.openai.errors import error_body
from suffolk.serving.transport.http_body import read_body
from suffolk.serving.transport.http_errors import error_response

Workers = Callable[[], Awaitable[list[str]]]
"""Gives the HTTP addresses of the workers that take requests now."""
MAX_BODY_BYTES = 64 << 20
WAIT_SECONDS = 60.0
"""Longest time that a request waits for a worker, as while the only one is replaced."""
_RETRY_SECONDS = 0.1
_CONNECT_SECONDS = 2.0
_MAX_LOST = 2
"""Workers that may die while they work on a request, before it fails: it may be what ends them."""
_HOP_HEADERS = ("host", "connection", "keep-alive", "transfer-encoding", "content-length", "upgrade", "te", "trailer")


class Front:
    """Forwards requests. For one event loop. ``workers``: asked before every try."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._running: Counter[str] = Counter()
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, request: Request) -> Response:
        """Answer ``request`` by a worker. Raises Unavailable: none takes it within WAIT_SECONDS, or they die of it."""
        body = await read_body(request, MAX_BODY_BYTES)
        loop = asyncio.get_running_loop()
        end, lost, refused = loop.time() + WAIT_SECONDS, 0, set[str]()
        while lost < _MAX_LOST:
            free = [each for each in await self._workers() if each not in refused]
            if free:
                worker = min(free, key=lambda each: self._running[each])
                refused.add(worker)
                try:
                    if (answer := await self._ask(worker, request, body)) is not None:
                        return answer
                except aiohttp.ClientConnectorError:
                    pass  # it has not got the request
                except (aiohttp.ClientError, ConnectionError):
                    lost += 1
            elif loop.time() > end:
                raise Unavailable("no worker takes requests; see 'suffolk cluster status', and try again")
            else:
                await asyncio.sleep(_RETRY_SECONDS)
                refused.clear()
        raise Unavailable("the workers that got this request have ended; see 'suffolk cluster status'")

    async def _ask(self, worker: str, request: Request, body: bytes) -> Response | None:
        """The answer of ``worker``; None if it is stopping.

        Raises aiohttp.ClientError, ConnectionError: the worker ended before the answer began.
        """
        self._session = self._session or aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            auto_decompress=False,
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
        )
        self._running[worker] += 1
        try:
            url = f"http://{worker}{request.url.path}{'?' if request.url.query else ''}{request.url.query}"
            answer = await self._session.request(request.method, url, data=body, headers=_kept(request.headers))
            if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
                answer.close()
                return None
            headers = _kept(answer.headers)
            if not answer.content_type.endswith("event-stream"):
                return Response(await answer.read(), answer.status, headers)
            parts = self._parts(worker, answer)
            self._running[worker] += 1  # until ``parts`` ends
            return StreamingResponse(parts, answer.status, headers)
        finally:
            self._running[worker] -= 1

    async def _parts(self, worker: str, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """What the worker sends, as it arrives. A client that leaves cancels the worker's request."""
        try:
            async for part in answer.content.iter_any():
                yield part
        finally:
            self._running[worker] -= 1
            answer.close()


def front_app(workers: Workers) -> Starlette:
    """The application: /livez, /readyz and /healthz of its own; the rest is a worker's."""
    front = Front(workers)

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
        exception_handlers={SuffolkError: answer, HTTPException: answer},
    )


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_HEADERS}
