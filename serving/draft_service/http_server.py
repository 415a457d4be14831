"""The HTTP/JSON twin of Draft, Lookup and GetInfo, with metrics and health, for curl, browsers and Prometheus.

    POST /v1/lookup   {"contexts": [[1, 2]], "datastore": "wiki", "max_match": 16, "min_match": 1}
    POST /v1/draft    the same keys, and "max_depth": 10, "max_nodes": 64
    GET  /v1/info     facts about the datastores        GET  /metrics   for Prometheus
    GET  /livez       the process runs                  GET  /readyz    it takes requests: 200, else 503

Only "contexts" must be given; "max_nodes" is one number or one per context. Errors are {"error": {"code", "message"}}.
Bounded as the gRPC service is, with the same limits and places, and in connections, body size and time per read.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from datastore.errors import SuffolkError
from datastore.version import __version__
from serving.draft_service import limits
from serving.draft_service.http_calls import CALLS
from serving.draft_service.service import Service
from serving.draft_service.status import error_text, grpc_code, http_status

LOG = logging.getLogger("suffolk.draft_service")
MAX_CONNECTIONS = 64
READ_SECONDS = 5.0
"""How long one read or write on a connection may take; idle connections are closed after it."""


class HttpServer(ThreadingHTTPServer):
    """One thread per connection, at most MAX_CONNECTIONS of them; more are answered 503 at once."""

    daemon_threads = True
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: tuple[str, int], service: Service) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.service = service
        self.ready = threading.Event()
        self._places = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        request.settimeout(READ_SECONDS)
        request.sendall(
            b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
        )
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug(
            "HTTP connection lost", exc_info=True
        )  # the peer hung up; what our own code raises is answered in Handler


class Handler(BaseHTTPRequestHandler):
    """Routes one request; the work is done by ``Service``."""

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
        elif path == "/readyz":
            ready = self.server.ready.is_set()
            status, text = (HTTPStatus.OK, b"ok\n") if ready else (HTTPStatus.SERVICE_UNAVAILABLE, b"not serving\n")
            self._send(status, text, "text/plain")
        elif path == "/metrics":
            self._send(
                HTTPStatus.OK, self.server.service.metrics.exposition(), "text/plain; version=0.0.4; charset=utf-8"
            )
        elif path == "/v1/info":
            self._call("GetInfo", b"{}")
        else:
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED if path in ("/v1/draft", "/v1/lookup") else HTTPStatus.NOT_FOUND)

    def do_POST(self) -> None:
        method = {"/v1/draft": "Draft", "/v1/lookup": "Lookup"}.get(self.path)
        length = self.headers.get("Content-Length", "")
        if method is None:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif not (length.isascii() and length.isdigit()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED)
        elif int(length) > limits.MAX_REQUEST_BYTES:
            self._refuse(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the body has {length} bytes; the limit is {limits.MAX_REQUEST_BYTES}",
            )
        else:
            self._call(method, self.rfile.read(int(length)))

    def log_message(self, format: str, *args: Any) -> None:
        LOG.debug(format, *args)

    def _call(self, method: str, body: bytes) -> None:
        service = self.server.service
        try:
            reply = service.answer("http", method, lambda: CALLS[method](service, body))
        except SuffolkError as error:
            self._send_error(http_status(error), grpc_code(error).name, error_text(error))
        else:
            self._send(HTTPStatus.OK, json.dumps(reply).encode(), "application/json")

    def _refuse(self, status: HTTPStatus, text: str = "") -> None:
        """Answer what is wrong as HTTP, and hang up: the body, if any, was not read."""
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
