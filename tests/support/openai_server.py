"""Workers with OpenAI's API for tests, their clients, and the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import openai

from suffolk.serving.worker.openai.server import OpenAIServer
from suffolk.serving.worker.server import WorkerServer
from tests.support.waiting import HANG
from tests.support.worker_server import working


@contextmanager
def answering(*args: Any, cors_origins: tuple[str, ...] = (), **settings: Any) -> Iterator[WorkerServer]:
    """A worker as ``working`` makes it, with OpenAI's API."""
    with working(*args, kind=partial(OpenAIServer, cors_origins=cors_origins), **settings) as server:
        yield server


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
