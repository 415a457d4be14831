"""A follower changes from one leader to another."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from suffolk.serving.replication import follower
from suffolk.serving.replication.missing_changes import Runs
from suffolk.serving.replication.peer import Peer
from suffolk.serving.replication.replica import ReplicaStore
from tests.support.draft_server import serving
from tests.support.replica_pair import make_replica
from tests.support.waiting import HANG, until


def test_another_leader_while_the_documents_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "LOOK_SECONDS", 0.01)
    first, second, third = (make_replica(tmp_path / name / "chat") for name in "abc")
    list_held, listing, may_go_on = third.held, threading.Event(), threading.Event()

    def held_slowly() -> tuple[Runs, int]:
        listing.set()
        assert may_go_on.wait(HANG)
        return list_held()

    monkeypatch.setattr(third, "held", held_slowly)
    with first, second, third, serving({"chat": first}) as a, serving({"chat": second}) as b:
        _lead(first, 1)
        following = follower.Follower(third, [Peer(f"grpc://{each.listening[0]}", "chat") for each in (a, b)])
        third.before_close(following.close)
        assert listing.wait(HANG)
        _lead(second, 2)
        time.sleep(0.3)  # so that it sees the second one before it asks the first one
        may_go_on.set()
        until(lambda: second.feed.followers() == 1)
        assert third.state.epoch == 2


def _lead(store: ReplicaStore, epoch: int) -> None:
    store.fence(epoch)
    store.lead(epoch)
