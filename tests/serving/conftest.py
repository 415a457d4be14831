"""Object storage: one S3 server for all tests of a process."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from fsspec.config import conf

from tests.support.s3_server import SHORT_TIMEOUTS, S3Server, s3_server


@pytest.fixture(scope="session")
def storage_server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.fixture
def s3(storage_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server, which this process and those that it starts find."""
    for name, value in storage_server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setitem(conf, "s3", json.loads(SHORT_TIMEOUTS))  # the variable is read once
    yield storage_server
    storage_server.proxy.heal()
