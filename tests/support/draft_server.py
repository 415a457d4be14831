"""Draft servers and clients for tests, on free loopback ports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc

from suffolk.datastore.retriever import Retriever
from suffolk.serving.clients.remote_datastore import RemoteDatastore, connect
from suffolk.serving.decoding.drafters.retrieval.datastore import DatastoreDrafter
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.net.endpoint import Endpoint
from suffolk.serving.store.draft_service.server import DraftServer, DraftServerConfig
from tests.support.waiting import HANG

LOOPBACK = Endpoint("127.0.0.1", 0)
VOCABULARY = 40
RANDOM = np.random.default_rng(3)
DOCUMENTS = [[int(token) for token in RANDOM.zipf(1.4, 120).clip(1, VOCABULARY) - 1] for _ in range(6)]
CONTEXTS = [DOCUMENTS[place % 6][place : place + 1 + place % 30] for place in range(40)] + [[], [VOCABULARY - 1] * 9]
"""Contexts to look up in ``DOCUMENTS``: excerpts, the empty context, and one that does not occur."""


@contextmanager
def serving(datastores: Mapping[str, Retriever], **settings: Any) -> Iterator[DraftServer]:
    config = DraftServerConfig(**{"listen": (LOOPBACK,), "http": LOOPBACK, "grace": 2.0, **settings})
    with DraftServer(config, datastores) as server:
        yield server


@contextmanager
def connected(server: DraftServer, name: str = "", deadline: float = HANG) -> Iterator[RemoteDatastore]:
    store = connect(f"grpc://{server.listening[0]}/{name}", deadline)
    try:
        yield store
    finally:
        store.close()


def check_health(server: DraftServer, service: str) -> str:
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=HANG)
    return health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status)


def drafted(drafter: DatastoreDrafter, ids: list[int]) -> int:
    """Return the number of nodes that the drafter returns after ``ids``."""
    [found] = drafter.propose([DraftRequest(1, np.array(ids, np.int32), 8)])
    return len(found)
