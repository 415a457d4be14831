"""Clients of workers with OpenAI's API, and the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openai

from suffolk.serving.worker.server import WorkerServer
from tests.support.waiting import HANG


@contextmanager
def client_of(server: WorkerServer, key: str = "none", **more: Any) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://{server.http}/v1", api_key=key, max_retries=0, timeout=HANG, **more) as client:
        yield client


def events(data: bytes) -> list[Any]:
    """The events of a stream, each checked to be one line of data and a blank line; the last is "[DONE]"."""
    lines = data.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]
