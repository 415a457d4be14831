"""Draft services in processes, as replicas and shards of one datastore."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import suffolk
from suffolk.serving.clients.fanout.datastore import FanoutDatastore
from suffolk.serving.clients.fanout.replica_client import ReplicaClient
from tests.support.forked import running
from tests.support.processes import Running


def serve(store: Path, endpoint: str = "127.0.0.1:0", name: str = "code") -> tuple[str, ...]:
    return ("serve", f"{name}={store}", "--listen", endpoint, "--http", "off")


@contextmanager
def replicas_of(store: Path, count: int) -> Iterator[list[Running]]:
    with ExitStack() as stack:
        yield [stack.enter_context(running(*serve(store))) for _ in range(count)]


@contextmanager
def opened(address: str, deadline: float | None = None) -> Iterator[FanoutDatastore]:
    with suffolk.open(address, deadline=deadline) as store:
        assert isinstance(store, FanoutDatastore)
        yield store


def replicas(store: FanoutDatastore) -> list[ReplicaClient]:
    return [replica for shard in store.servers.shards for replica in shard]


def calls(store: FanoutDatastore) -> list[int]:
    return [replica.calls for replica in replicas(store)]


def longest_call(store: FanoutDatastore, context: list[int], times: int) -> float:
    """Seconds of the slowest of so many drafts. Each of them must be answered."""
    longest = 0.0
    for _ in range(times):
        begin = time.perf_counter()
        assert len(store.draft(context))
        longest = max(longest, time.perf_counter() - begin)
    return longest
