"""The HTTP server beside gRPC: uvicorn in a thread. Connections, bytes a second, and times of reads and writes are limited."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import h11
import uvicorn
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from suffolk.serving.net.admission import TokenBucket
from suffolk.serving.net.endpoint import Endpoint
from suffolk.serving.net.http_body import ErrorBody, error_response, plain_error
from suffolk.serving.net.http_middleware import SUBJECTS
from suffolk.serving.net.tls import ServerTls

READ_RATE = 16 << 20
"""Bytes a second that a server reads, over all connections. The event loop needs some 3 ms for a megabyte, even if it is
discarded."""
READ_BURST = 4 << 20
"""Bytes that may be read in one burst after a pause."""
SPARE_CONNECTIONS = 64
"""Connections in addition to admitted calls, for health checks, metrics and idle clients."""
READ_SECONDS = 5.0
"""Default of ``read_seconds`` and ``write_seconds`` in ``HttpLimits``."""
IDLE_SECONDS = 95.0
"""Seconds after which a connection without a request is closed. Proxies and clients close idle connections after 4 to 90 seconds.
They must close first. Otherwise the server may close a connection while a request is on the way."""
_SMALL = 1 << 16
"""A read of at most so many bytes is passed on immediately. A larger one waits while the server reads faster than ``READ_RATE``."""
_LAST_SECONDS = 0.5
"""Least seconds at shutdown for sending answers that are already complete."""


class PacedFlow(FlowControl):
    """Pauses reading while the application has enough unread data, as in uvicorn, and while the server reads faster than
    ``READ_RATE``. Reading resumes when neither holds."""

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._socket = transport
        self._held: asyncio.TimerHandle | None = None

    @property
    def is_paused(self) -> bool:
        """Whether reading is paused."""
        return self.read_paused or self._held is not None

    def hold(self, seconds: float, then: Callable[[], object]) -> None:
        """Read nothing for ``seconds``, then call ``then``. REQUIRES: no hold is active."""
        self._held = asyncio.get_running_loop().call_later(seconds, self._release, then)
        self._socket.pause_reading()

    def close(self) -> None:
        """The connection is lost."""
        if self._held is not None:
            self._held.cancel()

    def resume_reading(self) -> None:
        """The application calls this when it needs more of the body."""
        if self._held is None:
            super().resume_reading()
        else:
            self.read_paused = False

    def _release(self, then: Callable[[], object]) -> None:
        self._held = None
        then()
        if not self.is_paused:
            self._socket.resume_reading()


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of an HTTP server.

    Attributes:
        connections: the most open connections. A further connection replaces the connection that has waited the longest for a
            request; if none waits, it gets 503.
        read_seconds: seconds for the first request, and for the next part of any request.
        idle_seconds: seconds for the next request.
        write_seconds: seconds for a client to read buffered data, before the connection is closed.
        threads: calls that run at the same time outside of the event loop.
    """

    connections: int = SPARE_CONNECTIONS
    read_seconds: float = READ_SECONDS
    idle_seconds: float = IDLE_SECONDS
    write_seconds: float = READ_SECONDS
    threads: int = SPARE_CONNECTIONS


class HttpServer:
    """Serves an ASGI application at ``endpoint``. The constructor binds the address; ``run`` answers requests."""

    def __init__(
        self,
        endpoint: Endpoint,
        app: ASGIApp,
        limits: HttpLimits,
        tls: ServerTls | None = None,
        error_body: ErrorBody = plain_error,
    ) -> None:
        """``error_body``: makes the body of answers to requests that do not reach ``app``.

        Raises OSError: the address cannot be bound.
        """
        self.endpoint = endpoint
        self._listeners: list[socket.socket] = []
        try:
            for host in endpoint.hosts():
                self._listeners.append(_listen(host, self.endpoint.port, limits.connections))
                self.endpoint = endpoint.with_port(self._listeners[0].getsockname()[1])
        except OSError:
            self.close()
            raise
        self._threads = limits.threads
        make_protocol = partial(LimitedProtocol, limits, TokenBucket(READ_RATE, READ_BURST), error_body)
        self._config = uvicorn.Config(
            app,
            loop="asyncio",
            http=cast("type[asyncio.Protocol]", make_protocol),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            headers=[("server", "suffolk")],
            timeout_keep_alive=cast(int, limits.idle_seconds),  # uvicorn accepts a float
        )
        self._config.load()
        self._config.ssl = tls.http_context() if tls else None
        self._server = uvicorn.Server(self._config)

    def run(self) -> None:
        """Serve until ``stop``. All connections are closed and all threads joined when it returns."""
        asyncio.run(self._serve())

    def stop(self, seconds: float) -> None:
        """Let ``run`` return: refuse connections, give running calls ``seconds`` to finish, and then cancel them."""
        self._config.timeout_graceful_shutdown = cast(int, max(seconds, _LAST_SECONDS))
        self._server.should_exit = True

    def close(self) -> None:
        """Release the address of a server that never ran."""
        for listener in self._listeners:
            listener.close()

    async def _serve(self) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(self._threads, "http"))
        await self._server.serve(self._listeners)
        for connection in list(self._server.server_state.connections):  # connections of cancelled calls
            connection.transport.abort()
        await asyncio.sleep(0)


def _listen(host: str, port: int, backlog: int) -> socket.socket:
    """A listening socket. On ``::`` it also takes IPv4, as in gRPC. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    both = host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, backlog=backlog, dualstack_ipv6=both)


class LimitedProtocol(H11Protocol):
    """One connection, within ``HttpLimits``. ``pace``: the bytes that the server may read over all connections."""

    flow: PacedFlow

    def __init__(self, limits: HttpLimits, pace: TokenBucket, error_body: ErrorBody, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._limits, self._pace, self._error_body = limits, pace, error_body
        self._answered = time.monotonic()  # when the last request was answered, or the connection opened
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self.flow = PacedFlow(transport)
        if subjects := _subjects(transport):
            self.app = partial(_with_subjects, self.app, subjects)
        self.app = partial(_with_one_length, self.app, error_body=self._error_body)
        if len(self.connections) > self._limits.connections and not self._close_waiting():
            self.connections.discard(self)
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "all connections are in use; try again later")
        else:
            self._watch_read()

    def is_idle(self) -> bool:
        """Whether the connection waits: none of its requests is being answered. The head of its next request may have come in
        part."""
        return self.cycle is None or self.cycle.response_complete

    def _close_waiting(self) -> bool:
        """Close the other connection that has waited the longest for a request. Returns whether there was one."""
        others = [each for each in self.connections if isinstance(each, LimitedProtocol) and each is not self]
        waiting = [each for each in others if each.is_idle()]
        if not waiting:
            return False
        oldest = min(waiting, key=lambda each: each._answered)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def data_received(self, data: bytes) -> None:
        """Pass ``data`` on. Small requests pass immediately, so that others' large requests do not delay them."""
        self._pace.add(-len(data))
        seconds = self._pace.take(0)
        if seconds <= 0:
            self._use(data)
        elif len(data) <= _SMALL:
            self._use(data)
            self.flow.hold(seconds, lambda: None)
        else:
            self.flow.hold(seconds, partial(self._use, data))

    def _use(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_read()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._answered = time.monotonic()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(self._limits.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._writing)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._reading)
        _cancel(self._writing)
        self.flow.close()
        super().connection_lost(exc)

    def _watch_read(self) -> None:
        """Close the connection after ``read_seconds`` if it still waits for its first request or for the rest of a request."""
        _cancel(self._reading)
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self._reading = self.loop.call_later(self._limits.read_seconds, self._end_read)

    def _end_read(self) -> None:
        if self.flow.is_paused:  # the server has not yet used earlier data
            self._watch_read()
            return
        is_partial = self.conn.our_state is h11.IDLE and self.conn.trailing_data[0]
        if is_partial or self.conn.our_state is h11.SEND_RESPONSE:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the rest of the request did not come in time; send it faster")
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn while it handles h11's error about a request that is not HTTP."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(HTTPStatus.BAD_REQUEST, f"the request is not valid HTTP: {sys.exc_info()[1] or msg}")
        else:
            self.transport.close()

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Answer without the application, and close the connection."""
        body = json.dumps(self._error_body(status, HTTPException(status, text))).encode()
        head = f"HTTP/1.1 {status.value} {status.phrase}\r\nConnection: close\r\nContent-Type: application/json\r\n"
        head += "Retry-After: 1\r\n" if status is HTTPStatus.SERVICE_UNAVAILABLE else ""
        self.transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()


async def _with_one_length(app: ASGIApp, scope: Scope, receive: Receive, send: Send, error_body: ErrorBody) -> None:
    """Refuse a request with two lengths, and close its connection. A proxy may use the length that this server does not use, and
    take the bytes after it for another request."""
    names = {name for name, _ in scope.get("headers", ())}
    if {b"content-length", b"transfer-encoding"} <= names:
        problem = "the request has both Content-Length and Transfer-Encoding; send one of them"
        app = error_response(HTTPException(HTTPStatus.BAD_REQUEST, problem), error_body)
    await app(scope, receive, send)


async def _with_subjects(app: ASGIApp, subjects: Sequence[str], scope: Scope, receive: Receive, send: Send) -> None:
    scope[SUBJECTS] = subjects
    await app(scope, receive, send)


def _subjects(transport: asyncio.Transport) -> list[str]:
    """Common name and alternative names of the client's certificate; none without mTLS."""
    found = transport.get_extra_info("peercert") or {}
    names = [value for part in found.get("subject", ()) for key, value in part if key == "commonName"]
    return names + [value for _, value in found.get("subjectAltName", ())]


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
