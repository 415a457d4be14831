"""Draft servers and clients for tests: real ones, on loopback, on ports that are free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from datastore.retriever import Retriever
from serving.draft_service.client import RemoteDatastore, connect
from serving.draft_service.server import DraftServer, DraftServerConfig
from serving.transport.endpoint import Endpoint

LOOPBACK = Endpoint("127.0.0.1", 0)
PATIENT = 60.0
"""Seconds: a deadline that only a hang can miss."""


@contextmanager
def serving(datastores: Mapping[str, Retriever], **settings: Any) -> Iterator[DraftServer]:
    config = DraftServerConfig(**{"listen": (LOOPBACK,), "http": LOOPBACK, "grace": 2.0, **settings})
    with DraftServer(config, datastores) as server:
        yield server


@contextmanager
def connected(server: DraftServer, name: str = "", deadline: float = PATIENT) -> Iterator[RemoteDatastore]:
    store = connect(f"grpc://{server.listening[0]}/{name}", deadline)
    try:
        yield store
    finally:
        store.close()
