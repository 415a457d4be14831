"""HTTP/JSON paths of the draft service, beside those of every server (transport/http_server.py).

    POST /v1/lookup   {"contexts": [[1, 2]], "datastore": "wiki", "max_match": 16, "min_match": 1}
    POST /v1/draft    the same keys, and "max_depth": 10, "max_nodes": 64
    GET  /v1/info     describes the datastores

Only "contexts" is required. "max_nodes" is one number, or one per context. Limits and admission are those of gRPC.
"""

from __future__ import annotations

import json
from http import HTTPStatus

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.draft_service import limits
from suffolk.serving.draft_service.http_calls import CALLS
from suffolk.serving.draft_service.service import DraftService
from suffolk.serving.transport.http_server import Handler, HttpServer
from suffolk.serving.transport.status import error_text, grpc_code, http_status

_MAX_DIGITS = 18
"""Most digits of a Content-Length that are read: ``int`` raises for thousands of digits."""


class DraftHttpServer(HttpServer):
    """The HTTP server of a ``DraftService``."""

    def __init__(self, address: tuple[str, int], service: DraftService) -> None:
        self.service = service
        super().__init__(address, DraftHandler, service.metrics.exposition)


class DraftHandler(Handler):
    """Handles the requests of one connection."""

    server: DraftHttpServer

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/v1/info":
            self._call("GetInfo", b"{}")
        elif path in ("/v1/draft", "/v1/lookup"):
            self._refuse(HTTPStatus.METHOD_NOT_ALLOWED)
        else:
            super().do_GET()

    def do_POST(self) -> None:
        method = {"/v1/draft": "Draft", "/v1/lookup": "Lookup"}.get(self.path)
        length = self.headers.get("Content-Length", "")
        if method is None:
            self._refuse(HTTPStatus.NOT_FOUND)
        elif not (length.isascii() and length.isdigit()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED)
        elif len(length) > _MAX_DIGITS or int(length) > limits.MAX_REQUEST_BYTES:
            text = f"the body has more than {limits.MAX_REQUEST_BYTES} bytes, the limit; split it into several calls"
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        else:
            self._call(method, self.rfile.read(int(length)))

    def _call(self, method: str, body: bytes) -> None:
        service = self.server.service
        try:
            reply = service.handle_call("http", method, lambda: CALLS[method](service, body))
        except SuffolkError as error:
            self._send_error(http_status(error), grpc_code(error).name, error_text(error))
        else:
            self._send(HTTPStatus.OK, json.dumps(reply).encode(), "application/json")
