"""POST /v1/append_stream: appends documents from a body of any length, one JSON object a line.

    {"tokens": [1, 2]}
    {"text": "one two", "id": "a.txt", "metadata": {"license": "mit"}, "group": "g"}

The query may have ?datastore=chat, and &group=g for all documents without a group. Lines are appended as they arrive.
The complete lines in one part of the body are appended together. The answer counts the documents. If a line fails, the
lines of earlier parts stay appended. The answer is then the error, whose "lines" and "appended" say what was appended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from suffolk.datastore import limits
from suffolk.datastore.appendable import Appended
from suffolk.datastore.errors import DeadlineExceeded, InvalidArgument, SuffolkError
from suffolk.serving.net.http_body import (
    LargeBodies,
    check_encoding,
    check_query,
    discard_rest,
    error_response,
    parse_body,
    plain_error,
)
from suffolk.serving.store.draft_service import streams
from suffolk.serving.store.draft_service.http_live import AppendBody, DocumentBody, append, token_array
from suffolk.serving.store.draft_service.live_calls import LiveCalls, add_appended
from suffolk.serving.store.draft_service.service import DraftService

T = TypeVar("T")
_DOCUMENTS = TypeAdapter(list[DocumentBody])
"""Parses several lines at once, in a fraction of the time of single lines. After an error, lines are parsed one by one, to find
the wrong line."""


def stream_endpoint(
    service: DraftService, calls: LiveCalls, bodies: LargeBodies
) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint. ``bodies``: takes turns with the bodies of other endpoints."""

    async def answer(request: Request) -> Response:
        check_encoding(request, is_stream=True)
        with service.metrics.count_refusals("http", "AppendStream"):
            check_query(request, "datastore", "group")
        with service.streams.take("http"):
            return await _append_lines(request, service, calls, bodies)

    return answer


async def _append_lines(request: Request, service: DraftService, calls: LiveCalls, bodies: LargeBodies) -> Response:
    total: Appended | None = None
    done = 0
    try:
        async for lines in line_parts(request):
            found = await bodies.run(sum(map(len, lines)), partial(_read, request, lines, done + 1))
            if found is not None:
                work = partial(_append, calls, request, found, f"lines {done + 1} to {done + len(lines)}")
                total = add_appended(total, await asyncio.to_thread(service.handle_call, "http", "AppendStream", work))
            done += len(lines)
        if total is None:
            raise InvalidArgument("the body has no line; send at least one document")
    except SuffolkError as error:
        await discard_rest(request)
        error.extend(after=f"; the {done} lines before are appended")
        state: dict[str, Any] = {"lines": done, "appended": None if total is None else asdict(total)}
        return error_response(error, lambda status, error: {**plain_error(status, error), **state})
    return JSONResponse({"lines": done, "appended": asdict(total)})


async def line_parts(request: Request) -> AsyncIterator[list[bytes]]:
    """The complete lines of each part of the body, without their ends; lines may be empty.

    Raises:
        InvalidArgument: a line is longer than a request may be.
        DeadlineExceeded: a line is not complete in time.
    """
    kept = bytearray()
    parts, loop = request.stream(), asyncio.get_running_loop()
    seconds = streams.FIRST_MESSAGE_SECONDS
    end = loop.time() + seconds
    while (part := await _next(parts, end - loop.time(), seconds)) is not None:
        kept += part
        cut = len(kept) - len(part) + part.rfind(b"\n") + 1
        if b"\n" in part:
            yield bytes(kept[: cut - 1]).split(b"\n")
            del kept[:cut]
            seconds = streams.STREAM_SECONDS
            end = loop.time() + seconds
        if len(kept) > limits.MAX_REQUEST_BYTES:
            raise InvalidArgument(
                f"a line has more than {limits.MAX_REQUEST_BYTES} bytes, the limit; split the document"
            )
    if kept:
        yield [bytes(kept)]


async def _next(parts: AsyncIterator[bytes], left: float, seconds: float) -> bytes | None:
    try:
        return await asyncio.wait_for(anext(parts, None), left)
    except asyncio.TimeoutError:
        raise DeadlineExceeded(f"no line was complete within {seconds:g} seconds; send lines faster") from None


def _read(request: Request, lines: Sequence[bytes], first: int) -> tuple[AppendBody, list[Any]] | None:
    """The body of an append of ``lines``; None if all are empty. ``first``: number of the first line, for errors."""
    given = {number: line for number, line in enumerate(lines, first) if line.strip()}
    try:
        documents = _DOCUMENTS.validate_json(b"[%s]" % b",".join(given.values()))
    except ValidationError:
        documents = []
    if len(documents) != len(given):
        documents = [_at_line(number, partial(parse_body, DocumentBody, line)) for number, line in given.items()]
    tokens = [
        _at_line(number, partial(token_array, each, "document")) for number, each in zip(given, documents, strict=True)
    ]
    query = request.query_params
    body = AppendBody(datastore=query.get("datastore", ""), group=query.get("group"), documents=documents)
    return (body, tokens) if documents else None


def _at_line(number: int, read: Callable[[], T]) -> T:
    try:
        return read()
    except InvalidArgument as error:
        error.extend(f"line {number}: ")
        raise


def _append(calls: LiveCalls, request: Request, found: tuple[AppendBody, list[Any]], lines: str) -> Appended:
    try:
        return Appended(**append(calls, request, found))
    except InvalidArgument as error:
        error.extend(f"{lines}: ")
        raise
