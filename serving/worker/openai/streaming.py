"""Server-sent events, and clients that disconnect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from typing import Any

from starlette.types import Receive, Send

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies must pass events on at once
]
DONE = b"data: [DONE]\n\n"


async def send_events(send: Send, events: AsyncIterator[list[dict[str, Any]]], named: bool = False) -> None:
    """Send each list of ``events`` at once, and [DONE] at the end. ``named``: with their types as names, without [DONE]."""
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    async for group in events:
        await send(
            {"type": "http.response.body", "body": b"".join(_event(each, named) for each in group), "more_body": True}
        )
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
    return name + b"data: %s\n\n" % json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
