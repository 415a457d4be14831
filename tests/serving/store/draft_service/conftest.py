"""A draft service with a retriever that can block in the middle of a call."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.net.proto import draft_pb2_grpc
from suffolk.serving.store.draft_service.server import DraftServer
from tests.support.brute_force import BruteForceRetriever
from tests.support.draft_server import DOCUMENTS, VOCABULARY, connected, serving


@pytest.fixture
def brute() -> Iterator[BruteForceRetriever]:
    retriever = BruteForceRetriever(DOCUMENTS, VOCABULARY)
    yield retriever
    retriever.gate.set()


@pytest.fixture
def server(brute: BruteForceRetriever) -> Iterator[DraftServer]:
    """It has no HTTP, which takes 0.2 s to stop."""
    with serving({"wiki": brute}, http=None) as server:
        yield server


@pytest.fixture
def http_server(brute: BruteForceRetriever) -> Iterator[DraftServer]:
    with serving({"wiki": brute}) as server:
        yield server


@pytest.fixture
def remote(server: DraftServer) -> Iterator[RemoteDatastore]:
    with connected(server) as remote:
        yield remote


@pytest.fixture
def stub(server: DraftServer) -> Iterator[draft_pb2_grpc.DraftServiceStub]:
    with grpc.insecure_channel(str(server.listening[0])) as channel:
        yield draft_pb2_grpc.DraftServiceStub(channel)
