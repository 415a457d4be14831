"""Servers with copies of a store are killed, paused and started again, and lose what is on their disks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from suffolk.datastore.errors import DeadlineExceeded, Unavailable
from suffolk.serving.clients.remote_datastore import connect
from tests.support.replica_kills import kill_servers
from tests.support.replicas import Replicas
from tests.support.waiting import HANG, until


def test_nothing_acknowledged_is_lost_and_nothing_is_twice(tmp_path: Path) -> None:
    report = kill_servers(tmp_path, kills=2, seed=5)
    assert report.kills["leader"] >= 1
    assert report.acknowledged > 20


def test_a_paused_follower_and_a_killed_leader(tmp_path: Path) -> None:
    with Replicas(tmp_path, 2) as replicas:
        replicas.start(0, 1)
        replicas.await_step()
        leader = replicas.leader()
        first, second = connect(replicas.url(leader), HANG), connect(replicas.url(1 - leader), HANG)
        first.append([1, 2, 3])
        assert second.lookup([1, 2, 3]).count == 1
        with pytest.raises(Unavailable, match=f"append to 127.0.0.1:{replicas.ports[leader]}"):
            second.append([1, 2, 3])
        replicas.pause(1 - leader)
        with pytest.raises(DeadlineExceeded, match="1 of 2 copies have the change after 5 s, so it may stay or vanish"):
            first.append([4, 5, 6])
        with pytest.raises(Unavailable, match="1 of 2 copies, so it takes no changes, and nothing is changed"):
            first.append([7, 7, 7])
        assert first.lookup([4, 5, 6]).count == 1
        replicas.kill(leader)
        replicas.resume(1 - leader)
        until(lambda: replicas.leader() == 1 - leader)
        replicas.start(leader)  # it drops what the new leader has not
        replicas.await_step()
        for number in (0, 1):
            store = connect(replicas.url(number), HANG)
            assert [store.lookup(text).count for text in ([1, 2, 3], [7, 7, 7])] == [1, 0]
            assert store.lookup([4, 5, 6]).count == connect(replicas.url(1 - leader), HANG).lookup([4, 5, 6]).count


def test_a_spoiled_log_and_an_empty_disk_lose_nothing(tmp_path: Path) -> None:
    with Replicas(tmp_path, 3, ("--durability", "always")) as replicas:
        replicas.start(0, 1, 2)
        replicas.await_step()
        leader = replicas.leader()
        for number in range(20):
            connect(replicas.url(leader), HANG).append([1, 2, number])
        replicas.kill(leader)
        log = max((replicas.path(leader) / "live" / "log").glob("*.log"))
        log.write_bytes(log.read_bytes()[:-1] + b"\0")
        replicas.start(leader)
        replicas.await_step()
        empty = replicas.leader()
        replicas.kill(empty)
        shutil.rmtree(replicas.path(empty))
        replicas.make(empty)
        replicas.start(empty)
        replicas.await_step()
        for number in range(3):
            assert connect(replicas.url(number), HANG).lookup([1, 2]).count == 20
