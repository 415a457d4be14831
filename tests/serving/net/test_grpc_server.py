"""The threads that answer gRPC calls, and how many connections a server accepts."""

from __future__ import annotations

import resource
import threading

import pytest

from suffolk.serving.net import grpc_server
from suffolk.serving.net.grpc_server import CallingThread, CallPool


def test_running_and_waiting_calls_fill_a_pool() -> None:
    gate = threading.Event()
    with CallPool("test", threads=1, most=3) as pool:
        futures = [pool.submit(gate.wait, 60) for _ in range(2)]
        assert not pool.is_full()
        futures.append(pool.submit(int, "no number"))
        assert pool.is_full()
        assert futures.pop(1).cancel() or gate.is_set()
        assert not pool.is_full()
        gate.set()
        assert isinstance(futures[-1].exception(60), ValueError)


def test_work_runs_in_the_calling_thread() -> None:
    pool = CallingThread(1)
    assert pool.submit(threading.get_ident).result() == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result()


def test_a_server_accepts_half_as_many_connections_as_it_may_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (1024, 1024)}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, wanted: limits.update(now=wanted))
    assert grpc_server.most_connections() == 512
    limits["now"] = (1024, 4096)
    assert grpc_server.most_connections() == 2048
    limits["now"] = (1024, resource.RLIM_INFINITY)
    assert grpc_server.most_connections() == grpc_server.MOST_CONNECTIONS
