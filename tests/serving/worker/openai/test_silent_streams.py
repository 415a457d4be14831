"""Tests how events are sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from suffolk.serving.worker.openai import endpoint
from suffolk.serving.worker.openai.endpoint import DONE, PING, send_events


@pytest.mark.parametrize("named", [False, True])
def test_comments_fill_a_silent_stream(monkeypatch: pytest.MonkeyPatch, named: bool) -> None:
    """Regression: proxies closed the connection of a request that waited in the queue."""
    monkeypatch.setattr(endpoint, "PING_SECONDS", 0.01)
    sent: list[dict[str, Any]] = []
    several = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 4:
            several.set()

    async def events() -> AsyncIterator[list[dict[str, Any]]]:
        await several.wait()
        yield [{"type": "a"}]

    asyncio.run(asyncio.wait_for(send_events(send, events(), named), 30))
    event = b'event: a\ndata: {"type":"a"}\n\n' if named else b'data: {"type":"a"}\n\n'
    bodies = [each["body"] for each in sent[1:]]
    assert bodies[:3] == [PING] * 3
    assert bodies[-2:] == [event, b"" if named else DONE]
    assert not sent[-1]["more_body"]


def test_a_stream_of_events_has_no_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "PING_SECONDS", 0.2)
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def events() -> AsyncIterator[list[dict[str, Any]]]:
        for _ in range(10):
            await asyncio.sleep(0.05)
            yield [{"type": "a"}]

    asyncio.run(send_events(send, events()))
    assert len(sent) == 12


def test_events_have_no_character_at_which_clients_split_lines() -> None:
    """Regression: clients that read lines with Python's ``splitlines`` found half of the JSON."""
    sent: list[bytes] = []
    text = {"type": "a", "text": "é\u2028\u2029\x85\n\x0b\x1c"}

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def events() -> AsyncIterator[list[dict[str, Any]]]:
        yield [text]

    asyncio.run(send_events(send, events()))
    [line, *_] = b"".join(sent).decode().splitlines()
    assert json.loads(line.removeprefix("data: ")) == text
    assert "é" in line
