"""The endpoints that generate text. They share admission, limits, metrics and recordings with gRPC."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Generic

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.net.call_errors import grpc_code, http_status
from suffolk.serving.net.http_body import InvalidField, LargeBodies, parse_body, read_utf8
from suffolk.serving.net.metrics import CallOutcome
from suffolk.serving.worker import limits
from suffolk.serving.worker.call import GenerateCall
from suffolk.serving.worker.openai.answer import Answer, BodyT
from suffolk.serving.worker.openai.errors import error_body
from suffolk.serving.worker.openai.generate_calls import require_model
from suffolk.serving.worker.openai.known_fields import is_of_another_server
from suffolk.serving.worker.openai.text_run import TextRuns
from suffolk.serving.worker.openai.token_texts import TokenTexts
from suffolk.serving.worker.service import DecodeService

LOG = logging.getLogger("suffolk.worker")
MAX_UNKNOWN = 64
"""Most names of unknown fields that are logged."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies must pass events on at once
]
_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
DONE = b"data: [DONE]\n\n"
PING_SECONDS = 10.0
"""Seconds between two checks of a stream. If it sent nothing since the last check, it sends a comment, because proxies close
connections that are silent for 30 to 120 seconds. A request can be silent as long in the queue, or while its prompt is read."""
_LINE_ENDS = {ord(each): f"\\u{ord(each):04x}" for each in "\x85\u2028\u2029"}
"""Characters at which some clients split lines, although the format of streams does not. JSON leaves these characters
unescaped."""
PING = b": waiting\n\n"


class GenerateEndpoint(Generic[BodyT]):
    """An ASGI application for one path. Long work runs in threads."""

    def __init__(
        self,
        service: DecodeService,
        method: str,
        body: type[BodyT],
        read: Callable[[DecodeService, BodyT], list[GenerateCall]],
        answer: Callable[[str, BodyT, TextRuns, TokenTexts], Answer[BodyT]],
        bodies: LargeBodies,
    ) -> None:
        """``method``: name of the endpoint in metrics. ``read``: converts a body to ``GenerateCall``s. ``bodies``: shared by all
        endpoints."""
        self._service, self._method = service, method
        self._body, self._read, self._answer = body, read, answer
        self._bodies = bodies
        self._tokens = TokenTexts(service.engine.target.tokenizer)
        self._unknown: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        data = await read_json(Request(scope, receive), limits.body_bytes(self._service.engine.capacity))

        async def respond() -> None:
            with self._service.metrics.measure_call("http", self._method) as outcome:
                await self._respond(data, outcome, scope, receive, send)

        await until_disconnect(receive, respond())

    async def _respond(self, data: bytes, outcome: CallOutcome, scope: Scope, receive: Receive, send: Send) -> None:
        with self._service.admission.admit_call():  # bounds the bodies that are parsed at the same time
            body = await self._bodies.run(len(data), lambda: parse_body(self._body, data, self._body.check_given))
            self._log_unknown(body)
            generate_calls = await asyncio.to_thread(self._read_body, body)
        with self._service.admission.admit_call(len(generate_calls)):
            runs = TextRuns(self._service, generate_calls, body.n or 1)
            try:
                await asyncio.to_thread(runs.start)
                answer = self._answer(body.model or self._service.model, body, runs, self._tokens)
                if body.stream:
                    await send_events(send, self._events(answer, outcome), answer.names_events)
                else:
                    await JSONResponse(await answer.whole(outcome))(scope, receive, send)
            finally:
                runs.cancel()

    def _log_unknown(self, body: BodyT) -> None:
        """Log the names of unknown fields, which are ignored. Each name is logged once."""
        for name in sorted({name for name in body.model_extra or {} if not is_of_another_server(name)} - self._unknown):
            if len(self._unknown) < MAX_UNKNOWN:
                self._unknown.add(name)
                LOG.info("%s: the field %.64r is unknown, and ignored", self._method, name)

    def _read_body(self, body: BodyT) -> list[GenerateCall]:
        require_model(self._service, body.model)
        generate_calls, limit = self._read(self._service, body), self._service.admission.max_in_flight
        if len(generate_calls) > limit:  # even an idle worker has no room
            raise InvalidField(
                "n", f": the request asks for {len(generate_calls)} texts; this worker takes {limit} at once; lower n"
            )
        return generate_calls

    async def _events(self, answer: Answer[BodyT], outcome: CallOutcome) -> AsyncIterator[list[dict[str, Any]]]:
        """The chunks of a stream. An error becomes the last event, because the HTTP status has already been sent."""
        try:
            async for chunks in answer.chunks(outcome, self._service.stream_interval):
                yield chunks
        except SuffolkError as error:
            outcome.code = grpc_code(error).name
            yield [answer.failure(error_body(http_status(error), error))]


async def read_json(request: Request, limit: int) -> bytes:
    """The body of a request of at most ``limit`` bytes and MAX_LISTS lists and objects. Lists and objects take long to
    parse.

    The content type of a web page's request must be JSON, so that browsers require CORS permission. ``curl -d`` by itself sends
    another content type.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _JSON and (kind not in ("", _FORM) or "origin" in request.headers):
        text = f"the content type is {kind!r}; send JSON with 'Content-Type: application/json'"
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
    data = await read_utf8(request, limit)
    if (lists := data.count(b"[") + data.count(b"{")) > limits.MAX_LISTS:
        raise InvalidField("", f" has {lists} brackets and braces; the limit is {limits.MAX_LISTS}; split the request")
    return data


async def send_events(send: Send, events: AsyncIterator[list[dict[str, Any]]], named: bool = False) -> None:
    """Send each list of ``events`` at once, and [DONE] at the end. ``named``: events have their types as names, and [DONE] is not
    sent.

    Between events, comments keep the connection open.
    """
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    silent = True

    async def part(data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})

    async def ping() -> None:
        nonlocal silent
        while True:
            await asyncio.sleep(PING_SECONDS)
            if silent:
                await part(PING)
            silent = True

    pinging = asyncio.create_task(ping())
    try:
        async for group in events:
            silent = False
            await part(b"".join(_event(each, named) for each in group))
    finally:
        pinging.cancel()
    await send({"type": "http.response.body", "body": b"" if named else DONE, "more_body": False})


async def until_disconnect(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Await ``work``, and cancel it if the client disconnects. The body must have been read."""
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_disconnection(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        watching.cancel()
        if not working.done():
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working


async def _disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(value: dict[str, Any], named: bool) -> bytes:
    name = b"event: %s\n" % value["type"].encode() if named else b""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return name + b"data: %s\n\n" % (text if text.isascii() else text.translate(_LINE_ENDS)).encode()
