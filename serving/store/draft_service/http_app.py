"""HTTP/JSON routes of the draft service, in addition to the pages of every server (serving/net/http_app.py).

    POST /v1/lookup       {"contexts": [[1, 2]], "datastore": "wiki", "max_match": 16, "min_match": 1}
    POST /v1/draft        also "max_depth": 10, "max_nodes": 64, "texts": false, "by_datastore": false
    POST /v1/count        {"contexts": [[1, 2]], "trees": [{"tokens": [3, 4], "parents": [-1, 0]}]}
    POST /v1/occurrences  {"tokens": [1, 2], "datastore": "wiki", "limit": 10, "context": 16, "before": 0, "texts": false}
    GET  /v1/info         describes the datastores
    GET  /v1/tokenizer    tokenizer.json of ?datastore=wiki

Only "contexts" or "tokens" is required. "text" may be given instead of these. "max_nodes" is one number, or one per context.
"datastore" may be omitted if there is only one.
"datastores": [{"name": "wiki"}, {"name": "code", "weight": 3}] searches several as one.
Limits and admission are the same as for gRPC.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import zstandard
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from suffolk.datastore import limits
from suffolk.serving.net.admission import Readiness
from suffolk.serving.net.authenticator import Authenticator
from suffolk.serving.net.config import HostRules
from suffolk.serving.net.http_app import build_app
from suffolk.serving.net.http_body import (
    LARGE,
    LargeBodies,
    check_query,
    parse_body,
    plain_error,
    read_utf8,
)
from suffolk.serving.net.identity import Role, caller
from suffolk.serving.net.playground.pages import page_routes
from suffolk.serving.net.tokens import TOKEN
from suffolk.serving.store.draft_service import http_live, http_messages
from suffolk.serving.store.draft_service.http_messages import (
    CountBody,
    DraftBody,
    LookupBody,
    OccurrencesBody,
    tree_json,
)
from suffolk.serving.store.draft_service.http_stream import stream_endpoint
from suffolk.serving.store.draft_service.live_calls import LiveCalls
from suffolk.serving.store.draft_service.service import DraftService, Expired

PAGE = "datastore.html"
Read = Callable[[bytes], Any]
"""Parses a body. Raises InvalidArgument."""
Work = Callable[[DraftService, Request, Any, Expired], Any]
"""(service, request, parsed body, whether it is late) -> the answer, as JSON bytes or as an object to encode. Runs in a thread."""

HTTP_SECONDS = 10.0
"""Deadline of a call over HTTP. The deadline of a gRPC call is set by its client."""


def build_draft_app(
    service: DraftService,
    ready: Readiness,
    authenticator: Authenticator,
    hosts: HostRules,
    playground: bool = False,
) -> ASGIApp:
    """The application of ``service``.

    Args:
        ready: set while calls are accepted.
        authenticator: finds callers.
        hosts: which requests of browsers are answered.
        playground: whether there is a web page at /.
    """
    calls, bodies = LiveCalls(service), LargeBodies()
    get = partial(_route, service, bodies, "GET")
    post = partial(_route, service, bodies, "POST")

    def live(work: Callable[[LiveCalls, Request, Any], dict[str, Any]]) -> Work:
        return lambda service, request, found, expired: work(calls, request, found)

    routes = [
        post("/v1/draft", "Draft", _draft, partial(parse_body, DraftBody)),
        post("/v1/lookup", "Lookup", _lookup, partial(parse_body, LookupBody)),
        post("/v1/count", "Count", _count, partial(parse_body, CountBody)),
        post("/v1/occurrences", "Occurrences", _occurrences, partial(parse_body, OccurrencesBody)),
        get("/v1/info", "GetInfo", _info),
        get("/v1/tokenizer", "GetTokenizer", _tokenizer, keys=("datastore",)),
        post("/v1/append", "Append", live(http_live.append), http_live.read_append, Role.APPEND),
        get("/v1/document", "Get", live(http_live.get), keys=("datastore", "id")),
        post("/v1/delete", "Delete", live(http_live.delete), partial(parse_body, http_live.DeleteBody)),
        post("/v1/flush", "Flush", live(http_live.flush), http_live.read_flush),
        get("/v1/stats", "Stats", live(http_live.stats), keys=("datastore", "group")),
        Route("/v1/append_stream", stream_endpoint(service, calls, bodies), methods=["POST"], name="AppendStream"),
    ]
    pages = page_routes(PAGE) if playground else []
    return build_app(routes, service.metrics, ready, plain_error, authenticator, hosts, open_routes=pages)


def _draft(service: DraftService, request: Request, found: DraftBody, expired: Expired) -> dict[str, Any]:
    encoded = http_messages.encode_context(service, found, expired)
    trees = service.draft(found.choices(), found.query(), expired)
    described = [
        tree_json(tree) | http_messages.describe_tree(service, found, context, tree, expired)
        for context, tree in zip(found.contexts, trees, strict=True)
    ]
    return {"trees": described} | encoded


def _lookup(service: DraftService, request: Request, found: LookupBody, expired: Expired) -> dict[str, Any]:
    encoded = http_messages.encode_context(service, found, expired)
    matches = service.lookup(found.choices(), found.query(), expired)
    return {"matches": [{"length": length, "count": count} for length, count in matches]} | encoded


def _count(service: DraftService, request: Request, found: CountBody, expired: Expired) -> dict[str, Any]:
    contexts = [np.array(context, TOKEN) for context in found.contexts]
    counts = iter(service.count(found.choices(), contexts, found.paths(), expired))
    return {"counts": [[next(counts) for _ in tree.tokens] for tree in found.trees]}


def _occurrences(service: DraftService, request: Request, found: OccurrencesBody, expired: Expired) -> dict[str, Any]:
    http_messages.encode_pattern(service, found, expired)
    places = service.occurrences(found.choices(), found.query(), expired)
    texts = http_messages.describe_occurrences(service, found, places, expired)
    shown = [{"tokens": each.tokens.tolist(), "before": each.before.tolist()} for each in places]
    return {"occurrences": [each.facts() | ids | text for each, ids, text in zip(places, shown, texts, strict=True)]}


def _info(service: DraftService, request: Request, found: None, expired: Expired) -> dict[str, Any]:
    return {"datastores": service.info([])}


def _tokenizer(service: DraftService, request: Request, found: None, expired: Expired) -> bytes:
    frame = service.tokenizer(request.query_params.get("datastore", ""))
    return zstandard.ZstdDecompressor().decompress(frame, max_output_size=limits.MAX_TOKENIZER_BYTES)


def _nothing(data: bytes) -> None:
    """Ignores a body."""


def _route(
    service: DraftService,
    bodies: LargeBodies,
    http_method: str,
    path: str,
    method: str,
    work: Work,
    read: Read = _nothing,
    role: Role = Role.READ,
    keys: Sequence[str] = (),
) -> Route:
    """``role``: if a caller has this role in no tenant, it is refused before the body is read. ``keys``: keys that the query may
    have."""

    async def answer(request: Request) -> Response:
        if role > Role.READ:
            with service.metrics.count_refusals("http", method):
                caller().require_anywhere(role)
        data = await read_utf8(request, limits.MAX_REQUEST_BYTES)
        begin = time.monotonic()
        end = begin + HTTP_SECONDS
        found: Callable[[], Any] = partial(read, data)
        if len(data) > LARGE:
            turn = asyncio.ensure_future(bodies.run(len(data), found))
            await asyncio.wait([turn])
            found = turn.result  # its errors are the errors of the call below

        def run() -> Any:
            check_query(request, *keys)
            return work(service, request, found(), lambda: time.monotonic() >= end)

        reply = await asyncio.to_thread(service.handle_call, "http", method, run)
        response = Response(reply, media_type="application/json") if isinstance(reply, bytes) else JSONResponse(reply)
        response.headers["Server-Timing"] = f"total;dur={1000 * (time.monotonic() - begin):.3f}"
        return response

    return Route(path, answer, methods=[http_method], name=method)
