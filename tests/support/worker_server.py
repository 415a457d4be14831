"""Workers for tests, in this process, on free loopback ports."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from suffolk.datastore.retriever import Retriever
from suffolk.serving.clients.text_appender import TextAppender
from suffolk.serving.decoding.engine.costs.cost_model import CostModel
from suffolk.serving.decoding.engine.loop.drafter import Drafter
from suffolk.serving.decoding.engine.loop.engine import Engine
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.replay.recorder import Recorder
from suffolk.serving.net.config import ServerConfig
from suffolk.serving.worker.call import RemotePolicy
from suffolk.serving.worker.client import WorkerClient, connect_worker
from suffolk.serving.worker.server import WorkerServer
from suffolk.serving.worker.service import DEFAULT_POLICY, DecodeService
from tests.support.draft_server import LOOPBACK
from tests.support.tiny_models import tiny_model, tiny_tokenizer
from tests.support.waiting import HANG

TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'robot' %}{{ raise_exception('no robots') }}{% endif %}"
    "<{{ message['role'] }}>{{ message['content'] }}{% endfor %}<assistant>"
)


def talking_target() -> Target:
    """A tiny model with a tokenizer and a chat template, and room for 4096 tokens."""
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = TEMPLATE
    return Target.wrap(tiny_model(vocab_size=257, max_position_embeddings=4096), tokenizer, "tiny")


class FixedCosts(CostModel):
    """A pass takes a second, whatever is measured. So drafts pay on a busy machine too."""

    def __init__(self) -> None:
        super().__init__([1], [1.0])

    def copy(self) -> CostModel:
        return self

    def update(self, rows: int, requests: int, context: float, seconds: float) -> None:
        pass


@contextmanager
def working(
    target: Target,
    drafters: Mapping[str, Drafter] | None = None,
    slots: int = 2,
    queue: int = 8,
    capacity: int = 4096,
    slow_client_seconds: float = HANG,
    recorder: Recorder | None = None,
    appender: TextAppender | None = None,
    stream_interval: float = 0.0,
    policy: RemotePolicy = DEFAULT_POLICY,
    datastores: Sequence[Retriever] = (),
    names: Sequence[str] = (),
    cors_origins: tuple[str, ...] = (),
    reasoning: str = "auto",
    **settings: Any,
) -> Iterator[WorkerServer]:
    config = ServerConfig(**{"listen": (LOOPBACK,), "http": LOOPBACK, "grace": 0.2, **settings})
    with Engine(target, drafters, FixedCosts(), slots, capacity, queue=queue) as engine:
        service = DecodeService(
            engine,
            target.name,
            slow_client_seconds=slow_client_seconds,
            recorder=recorder,
            appender=appender,
            policy=policy,
            datastores=datastores,
            names=names,
        )
        service.set_stream_interval(1000 * stream_interval)
        with WorkerServer(config, service, cors_origins, reasoning=reasoning) as server:
            yield server


@contextmanager
def calling(server: WorkerServer) -> Iterator[WorkerClient]:
    with connect_worker(f"grpc://{server.listening[0]}") as client:
        yield client


def page(server: WorkerServer, path: str) -> tuple[int, str]:
    """Return status and body of a page of the worker's HTTP server."""
    try:
        with urllib.request.urlopen(f"http://{server.http}{path}", timeout=HANG) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
