"""Servers with copies of a store are killed, paused and started again."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from suffolk.datastore.errors import DeadlineExceeded, InvalidArgument, Unavailable
from suffolk.serving.draft_service.client import RemoteDatastore, connect
from suffolk.serving.fanout.topology import ReplicaAddress, Shard, Topology, write_topology
from suffolk.serving.replication.promote import has_leader, promote, read_replicas
from tests.support.processes import ENVIRONMENT, ROOT, SUFFOLK
from tests.support.replica_kills import kill_servers
from tests.support.replicas import Replicas
from tests.support.waiting import HANG, until


def test_nothing_acknowledged_is_lost_and_nothing_is_twice(tmp_path: Path) -> None:
    report = kill_servers(tmp_path, kills=2, seed=5)
    assert report.kills["leader"] >= 1
    assert report.acknowledged > 20


def test_a_paused_follower_and_an_old_leader(tmp_path: Path) -> None:
    with Replicas(tmp_path, 2) as replicas:
        replicas.start(0, 1)
        assert replicas.promote() == 0
        replicas.await_step()
        first, second = connect(replicas.url(0), HANG), connect(replicas.url(1), HANG)
        first.append([1, 2, 3])
        assert second.lookup([1, 2, 3]).count == 1
        with pytest.raises(Unavailable, match=f"append to 127.0.0.1:{replicas.ports[0]}"):
            second.append([1, 2, 3])
        _pause_follower(replicas, first)
        replicas.kill(1)
        replicas.kill(0)
        _return_of_the_leader(replicas)


def _pause_follower(replicas: Replicas, leader: RemoteDatastore) -> None:
    replicas.pause(1)
    with pytest.raises(DeadlineExceeded, match="1 of 2 copies have the change after 5 s, so it may stay or vanish"):
        leader.append([4, 5, 6])
    with pytest.raises(Unavailable, match="1 of 2 copies, so it takes no changes, and nothing is changed"):
        leader.append([7, 7, 7])
    assert leader.lookup([4, 5, 6]).count == 1


def _return_of_the_leader(replicas: Replicas) -> None:
    """The follower was killed before it received [4, 5, 6], and now leads. So the old leader drops this document."""
    replicas.start(1)
    with pytest.raises(InvalidArgument, match="named twice"):
        promote([replicas.url(1)] * 2)
    assert replicas.promote() == 1
    replicas.start(0)
    replicas.await_step()
    for number in (0, 1):
        store = connect(replicas.url(number), HANG)
        assert [store.lookup(text).count for text in ([1, 2, 3], [4, 5, 6], [7, 7, 7])] == [1, 0, 0]


def test_a_watch_promotes_by_the_newest_list_of_copies(tmp_path: Path) -> None:
    listed = tmp_path / "topology.json"
    with Replicas(tmp_path, 3) as replicas:
        replicas.start(0, 1)
        _list([replicas.url(0), replicas.url(2)], listed)
        command = [*SUFFOLK, "promote", "--watch", "1", str(listed)]
        with subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT) as watch:
            try:
                until(lambda: has_leader(read_replicas([replicas.url(0)]).values()))
                replicas.await_step()
                _list([replicas.url(0), replicas.url(1)], listed)
                replicas.kill(0)
                until(lambda: has_leader(read_replicas([replicas.url(1)]).values()))
            finally:
                watch.kill()


def _list(urls: Sequence[str], file: Path) -> None:
    shard = Shard(replicas=tuple(ReplicaAddress(url=url) for url in urls))
    write_topology(Topology(shards=(shard,)), file)
