"""Idle connections keep no call out, and use up no files."""

from __future__ import annotations

import resource

import pytest

from suffolk.serving.net import grpc_server


def test_a_server_accepts_half_as_many_connections_as_it_may_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (1024, 1024)}
    monkeypatch.setattr(resource, "getrlimit", lambda kind: limits["now"])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, wanted: limits.update(now=wanted))
    assert grpc_server.most_connections() == 512
    limits["now"] = (1024, 4096)
    assert grpc_server.most_connections() == 2048
    limits["now"] = (1024, resource.RLIM_INFINITY)
    assert grpc_server.most_connections() == grpc_server.MOST_CONNECTIONS
