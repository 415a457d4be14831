"""Copies of one store in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from suffolk.serving.store.replication.replicated_store import ReplicatedStore
from tests.support.replica_pair import lead, make_replica


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ReplicatedStore, ReplicatedStore]]:
    """A leader and a store that may follow it."""
    with make_replica(tmp_path / "x") as leader, make_replica(tmp_path / "y") as follower:
        lead(leader)
        yield leader, follower
