"""The HTTP server beside gRPC: metrics and health checks. The draft service adds its own paths.

    GET /livez    200 while the process runs            GET /metrics  Prometheus metrics
    GET /readyz   200 while calls are accepted, or 503  GET /healthz  same as /readyz

The number of connections and the time of each read are limited. Errors are {"error": {"code", "message"}}.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from suffolk.datastore.version import __version__

LOG = logging.getLogger("suffolk.http")
MAX_CONNECTIONS = 64
READ_SECONDS = 5.0
"""Limit of one read or write; idle connections are closed after it."""


class HttpServer(ThreadingHTTPServer):
    """One thread per connection. Connections beyond MAX_CONNECTIONS are answered 503 at once.

    Attributes:
        ready: set while calls are accepted.
        exposition: returns the metrics in Prometheus' text format.
    """

    daemon_threads = False  # server_close waits for them
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], handler: type[Handler], exposition: Callable[[], bytes]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.exposition = exposition
        self.ready = threading.Event()
        self._open: set[socket.socket] = set()
        self._changed = threading.Lock()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            free = len(self._open) < MAX_CONNECTIONS
            if free:
                self._open.add(request)
        if free:
            super().process_request(request, client_address)
            return
        request.settimeout(READ_SECONDS)
        request.sendall(
            b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
        )
        self.shutdown_request(request)

    def close_request(self, request: Any) -> None:
        with self._changed:
            self._open.discard(request)
        super().close_request(request)

    def server_close(self) -> None:
        """After ``shutdown``: close idle connections, and wait until the others have their answers."""
        with self._changed:
            for request in self._open:
                with suppress(OSError):  # the peer has closed it
                    request.shutdown(socket.SHUT_RD)
        super().server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug("HTTP connection lost", exc_info=True)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: HttpServer
    protocol_version = "HTTP/1.1"
    server_version = f"suffolk/{__version__}"
    sys_version = ""
    timeout = READ_SECONDS
    wbufsize = -1  # one write per reply
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/livez":
            self._send(HTTPStatus.OK, b"ok\n", "text/plain")
        elif path in ("/readyz", "/healthz"):
            ready = self.server.ready.is_set()
            status, text = (HTTPStatus.OK, b"ok\n") if ready else (HTTPStatus.SERVICE_UNAVAILABLE, b"not serving\n")
            self._send(status, text, "text/plain")
        elif path == "/metrics":
            self._send(HTTPStatus.OK, self.server.exposition(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._refuse(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: Any) -> None:
        LOG.debug(format, *args)

    def _refuse(self, status: HTTPStatus, text: str = "") -> None:
        """Answer with an HTTP error and close the connection, since the body was not read."""
        self.close_connection = True
        self._send_error(status, status.name, text or f"{self.command} {self.path}: {status.phrase}")

    def _send_error(self, status: HTTPStatus, code: str, message: str) -> None:
        self._send(status, json.dumps({"error": {"code": code, "message": message}}).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
            self.send_header("Retry-After", "1")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
