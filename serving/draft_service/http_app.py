"""HTTP/JSON routes of the draft service, in addition to the pages of every server (transport/http_app.py).

    POST /v1/lookup     {"contexts": [[1, 2]], "datastore": "wiki", "max_match": 16, "min_match": 1}
    POST /v1/draft      also "max_depth": 10, "max_nodes": 64
    GET  /v1/info       describes the datastores
    GET  /v1/tokenizer  tokenizer.json of ?datastore=wiki

Only "contexts" is required. "max_nodes" is one number, or one per context. "datastore" may be omitted if there is only one.
"datastores": [{"name": "wiki"}, {"name": "code", "weight": 3}] searches several as one.
Limits and admission are the same as for gRPC.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import zstandard
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from suffolk.serving.draft_service import http_live, limits
from suffolk.serving.draft_service.http_messages import DraftBody, LookupBody, tree_json
from suffolk.serving.draft_service.live_calls import LiveCalls
from suffolk.serving.draft_service.service import DraftService
from suffolk.serving.transport.authenticator import Authenticator
from suffolk.serving.transport.http_app import build_app
from suffolk.serving.transport.http_body import parse_body, read_body
from suffolk.serving.transport.http_errors import plain_error
from suffolk.serving.transport.readiness import Readiness

Work = Callable[[DraftService, Request, bytes], Any]
"""(service, request, body) -> the answer, as JSON bytes or as an object to encode. Runs in a thread."""


def build_draft_app(service: DraftService, ready: Readiness, authenticator: Authenticator) -> ASGIApp:
    """The application of ``service``. ``ready``: set while calls are accepted. ``authenticator``: finds callers."""
    routes = [
        Route("/v1/draft", _endpoint(service, "Draft", _draft), methods=["POST"]),
        Route("/v1/lookup", _endpoint(service, "Lookup", _lookup), methods=["POST"]),
        Route("/v1/info", _endpoint(service, "GetInfo", _info)),
        Route("/v1/tokenizer", _endpoint(service, "GetTokenizer", _tokenizer)),
    ]
    calls = LiveCalls(service)
    for method, verb, work in (
        ("Append", "POST", http_live.append),
        ("Delete", "POST", http_live.delete),
        ("Seal", "POST", http_live.seal),
        ("Stats", "GET", http_live.stats),
    ):
        answer = _endpoint(service, method, partial(_live, calls, work))
        routes.append(Route(f"/v1/{method.lower()}", answer, methods=[verb]))
    return build_app(routes, service.metrics.exposition, ready, plain_error, authenticator)


def _draft(service: DraftService, request: Request, body: bytes) -> dict[str, Any]:
    trees = service.draft(parse_body(DraftBody, body).request(), _never_expires)
    return {"trees": [tree_json(tree) for tree in trees]}


def _lookup(service: DraftService, request: Request, body: bytes) -> dict[str, Any]:
    matches = service.lookup(parse_body(LookupBody, body).request(), _never_expires)
    return {"matches": [{"length": length, "count": count} for length, count in matches]}


def _info(service: DraftService, request: Request, body: bytes) -> dict[str, Any]:
    return {"datastores": service.info([])}


def _tokenizer(service: DraftService, request: Request, body: bytes) -> bytes:
    frame = service.tokenizer(request.query_params.get("datastore", ""))
    return zstandard.ZstdDecompressor().decompress(frame, max_output_size=limits.MAX_TOKENIZER_BYTES)


def _live(
    calls: LiveCalls,
    work: Callable[[LiveCalls, Request, bytes], dict[str, Any]],
    service: DraftService,
    request: Request,
    body: bytes,
) -> dict[str, Any]:
    return work(calls, request, body)


def _endpoint(service: DraftService, method: str, work: Work) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        body = await read_body(request, limits.MAX_REQUEST_BYTES)
        call = service.handle_call
        reply = await asyncio.to_thread(call, "http", method, lambda: work(service, request, body))
        return Response(reply, media_type="application/json") if isinstance(reply, bytes) else JSONResponse(reply)

    return answer


def _never_expires() -> bool:
    """HTTP requests have no deadline; the limits on their fields bound the work."""
    return False
