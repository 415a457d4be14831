"""Tests a failure of the worker's machine or network during a stream. The connection is not closed."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from suffolk.datastore.errors import Unavailable
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings
from suffolk.serving.net import grpc_server
from suffolk.serving.worker import client
from suffolk.serving.worker.client import connect_worker
from tests.support.gates import Gate
from tests.support.waiting import HANG
from tests.support.worker_server import calling, working

SETTINGS = SamplingSettings(max_new_tokens=20, ignore_eos=True)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a ping per second, gRPC's maximum, with a short keepalive timeout."""
    monkeypatch.setattr(client, "PING_SECONDS", 0.2)
    monkeypatch.setattr(grpc_server, "PING_SECONDS", 0.2)
    monkeypatch.setattr(client, "_KEEPALIVE_TIMEOUT", 0.5)


@contextmanager
def relayed(port: int, cut: threading.Event) -> Iterator[int]:
    """Relay one connection to ``port``. After ``cut`` is set, nothing is relayed and the connection stays open."""

    def relay() -> None:
        with closing(listening.accept()[0]) as near, closing(socket.create_connection(("127.0.0.1", port))) as far:
            others = {near: far, far: near}
            while not over.is_set():
                for ready in [] if cut.wait(0.01) else select.select([near, far], [], [], 0.01)[0]:
                    others[ready].sendall(ready.recv(65536))

    over = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        thread = threading.Thread(target=relay)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            over.set()
            thread.join(HANG)


@pytest.mark.usefixtures("often")
def test_a_lost_worker_is_noticed(target: Target) -> None:
    """Regression: a client used to wait forever for a worker whose machine had lost power."""
    cut = threading.Event()
    with (
        working(target) as server,
        Gate(target) as gate,
        relayed(server.listening[0].port, cut) as port,
        connect_worker(f"grpc://127.0.0.1:{port}") as caller,
    ):
        generation = caller.generate("abc", SETTINGS, deadline=HANG)
        gate.wait()
        gate.let()
        next(generation)
        cut.set()
        with pytest.raises(Unavailable, match="the connection was lost; check whether the worker still runs"):
            list(generation)


@pytest.mark.usefixtures("often")
def test_a_slow_worker_is_not_lost(target: Target) -> None:
    with working(target) as server, Gate(target) as gate, calling(server) as caller:
        generation = caller.generate("abc", SETTINGS)
        gate.wait()
        time.sleep(6.0)  # gRPC's servers hang up on the fourth ping, where they permit none so soon
        gate.let()
        next(generation)
