"""A live datastore behind a draft service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.net.proto import draft_pb2, draft_pb2_grpc
from suffolk.serving.store.draft_service.server import DraftServer
from suffolk.serving.store.live_store.store import LiveStore, create_live_store
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import VOCABULARY, connected, serving

APPEND = draft_pb2.AppendRequest


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LiveStore]:
    with create_live_store(tmp_path / "chat", vocab_size=VOCABULARY) as store:
        yield store


@pytest.fixture
def server(store: LiveStore) -> Iterator[DraftServer]:
    with serving({"chat": store, "team/ids": BruteForceRetriever([[1, 2, 3]], VOCABULARY)}) as server:
        yield server


@pytest.fixture
def remote(server: DraftServer) -> Iterator[RemoteDatastore]:
    with connected(server, "chat") as remote:
        yield remote


@pytest.fixture
def stub(server: DraftServer) -> Iterator[draft_pb2_grpc.DraftServiceStub]:
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        yield draft_pb2_grpc.DraftServiceStub(channel)
