"""A replica: what it refuses, what it keeps on disk, and which of several leads."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

import suffolk
from suffolk.datastore.errors import (
    DeadlineExceeded,
    InvalidArgument,
    PermissionDenied,
    SuffolkError,
    Unavailable,
    Unsupported,
)
from suffolk.serving.live_store.check_log import check_log
from suffolk.serving.live_store.store import create_live_store, open_live_store
from suffolk.serving.replication import feed
from suffolk.serving.replication.open_replica import open_replica
from suffolk.serving.replication.peer import Peer
from suffolk.serving.replication.promote import has_leader, promote, read_replicas
from suffolk.serving.replication.replica import ReplicaStatus, ReplicaStore
from suffolk.serving.transport.access_file import add_token
from suffolk.serving.transport.identity import Role
from tests.support.draft_server import serving
from tests.support.replica_pair import PLAIN, Following, contents, make_replica
from tests.support.waiting import until


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ReplicaStore, ReplicaStore]]:
    """A leader and a store that may follow it."""
    with make_replica(tmp_path / "x") as leader, make_replica(tmp_path / "y") as follower:
        leader.fence(1)
        leader.lead(1)
        yield leader, follower


def test_the_last_document_survives_a_reconnection(pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    leader, follower = pair
    leader.append([1, 2], id="first")
    Following(leader, follower).close()
    Following(leader, follower).close()
    assert contents(follower) == contents(leader) == [("first", [1, 2])]
    leader.delete(ids=["first"])
    Following(leader, follower).close()
    assert contents(follower) == []
    assert follower.status().claim == leader.status().claim


def test_a_removal_that_nobody_else_knows_is_undone(pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    leader, follower = pair
    for name in "abc":
        leader.append([1, ord(name) % 40], id=name, group="g")
    Following(leader, follower).close()
    leader.append([7], id="lost", group="g", replace=True)
    follower.fence(2)
    follower.lead(2)
    follower.append([2], id="d")
    Following(follower, leader).close()
    assert contents(leader) == contents(follower)
    assert sorted(str(name) for name, _ in contents(leader)) == ["a", "b", "c", "d"]
    assert leader.group_stats("g").documents == 3
    assert leader.status().claim == follower.status().claim


def test_a_fenced_leader_takes_no_changes(pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    leader, _ = pair
    leader.append([1])
    leader.fence(5)
    with pytest.raises(
        Unavailable, match="x has no leader in epoch 5 yet; repeat 'suffolk promote'; nothing is changed"
    ):
        leader.append([2])
    with pytest.raises(Unavailable, match="x is in epoch 5 already; choose a later one than 5"):
        leader.fence(5)
    with pytest.raises(Unavailable, match="x is in epoch 5, not 4; repeat 'suffolk promote'"):
        leader.lead(4)
    assert contents(leader) == [(None, [1])]


def test_a_follower_takes_no_changes_of_an_earlier_epoch(pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    leader, follower = pair
    following = Following(leader, follower)
    follower.fence(2)
    leader.append([1])
    with pytest.raises(Unavailable, match="y is in epoch 2, and does not follow in 1 any more"):
        following.receive()
    with pytest.raises(Unavailable, match="here leads y in epoch 1, and this copy is in 2"):
        follower.begin_following(1, leader.identity, "here")
    with pytest.raises(Unavailable, match="x leads in epoch 1, and its follower is in 2 already"):
        leader.followed("there", 2, *follower.held()).__enter__()
    following.close()


def test_a_half_filled_follower_claims_what_it_had_before(pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    leader, follower = pair
    leader.append([1])
    Following(leader, follower).close()
    before = follower.status().claim
    leader.append_batch([suffolk.Document(str(number), {}, np.array([2])) for number in range(3)])
    follower.begin_following(1, leader.identity, "here")
    with leader.followed("there", 1, *follower.held()) as (_, missing):
        assert next(missing)
        assert follower.status().claim == before < leader.status().claim


def test_a_leader_leads_on_after_its_process_but_not_after_its_machine(tmp_path: Path) -> None:
    with make_replica(tmp_path / "x") as store:
        store.fence(1)
        store.lead(1)
        first = store.append([1]).sequence
    with make_replica(tmp_path / "x") as store:
        assert store.status().leads
        assert store.append([2]).sequence == first + 1 == (1 << 40) + 1
    path = tmp_path / "x" / "live" / "replica.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"boot": "an earlier one"}))
    with make_replica(tmp_path / "x") as store:
        assert not store.status().leads
        with pytest.raises(Unavailable, match="nothing is changed"):
            store.append([3])


def test_other_tokens_and_other_documents_are_refused(tmp_path: Path, pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    leader, follower = pair
    with (
        make_replica(tmp_path / "z", vocabulary=50) as other,
        pytest.raises(Unsupported, match="has vocab_size 50, and the store to copy has 40; make both with the same"),
    ):
        Following(leader, other)
    with create_live_store(tmp_path / "own", vocab_size=40) as own:
        own.append([1, 2, 3])
    with (
        make_replica(tmp_path / "own") as other,
        pytest.raises(Unsupported, match="holds documents of its own, and is no copy; name another folder"),
    ):
        Following(leader, other)
    leader.append([1], group="g")
    Following(leader, follower).close()
    assert follower.group_stats("g") == leader.group_stats("g")  # names of groups are hashed alike


def test_a_leader_without_documents_takes_another_identity(tmp_path: Path) -> None:
    with make_replica(tmp_path / "x") as first, make_replica(tmp_path / "y") as second:
        for epoch, store in ((1, first), (2, second)):
            store.fence(epoch)
            store.lead(epoch)
        first.append([1], group="g")
        first.delete(group="g")
        second.append([2], group="g")
        Following(second, first).close()
        assert first.group_stats("g").tokens == 1
    check_log(tmp_path / "x")


def test_a_copy_is_not_opened_by_itself(tmp_path: Path, pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    pair[0].close()
    with pytest.raises(InvalidArgument, match="is a copy of a store on other servers; serve it with --peer, or remove"):
        open_live_store(tmp_path / "x")
    with pytest.raises(Unsupported, match="has copies on other servers, and published files would have none"):
        pair[1].seal()
    with create_live_store(tmp_path / "sealed", vocab_size=40) as sealed:
        sealed.append([1])
        sealed.seal()
    with pytest.raises(
        Unsupported, match="has published files, which have no copies elsewhere; serve it without --peer"
    ):
        make_replica(tmp_path / "sealed")


def test_a_slow_follower_is_dropped(monkeypatch: pytest.MonkeyPatch, pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    leader, follower = pair
    following = Following(leader, follower)
    monkeypatch.setattr(feed, "MAX_WAITING_BYTES", 1000)
    for number in range(40):
        leader.append([number])
    with pytest.raises(Unavailable, match="the follower is too slow"):
        following.receive()
    following.close()
    Following(leader, follower).close()
    assert contents(follower) == contents(leader)


def test_a_late_append_drops_no_follower_that_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "COPY_SECONDS", 0.2)
    changes = feed.Feed("x", copies=2)
    changes.begin()
    with changes.subscribed("working", 1) as working, changes.subscribed("silent", 1) as silent:
        silent.last_seen -= 1
        changes.confirm(working, 0)
        working.last_seen += 1
        with pytest.raises(DeadlineExceeded, match="1 of 2 copies have the change"):
            changes.await_copies(2)
        assert (working.ended, silent.ended) == ("", "the follower confirmed nothing for 0.2 s")
        changes.confirm(working, 1)  # in step now
        with pytest.raises(DeadlineExceeded, match="1 of 2 copies have the change"):
            changes.await_copies(2)
        with pytest.raises(Unavailable, match="the follower confirmed nothing for"):
            changes.take(working, 0)


def test_a_follower_that_never_confirms_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "COPY_SECONDS", 0.0)
    changes = feed.Feed("x", copies=2)
    changes.begin()
    with (
        changes.subscribed("silent", 1) as silent,
        pytest.raises(Unavailable, match="the follower confirmed nothing for"),
    ):
        changes.take(silent, 0.01)


def test_only_an_admin_follows_and_promotes(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    tokens = {role: add_token(access, str(role), {"default": role}) for role in Role}
    files = {role: tmp_path / str(role) for role in Role}
    for role, file in files.items():
        file.write_text(tokens[role])
        file.chmod(0o600)
    with make_replica(tmp_path / "chat") as store, serving({"chat": store}, access=access) as server:
        urls = {role: f"grpc://{server.listening[0]}/chat?token_file={file}" for role, file in files.items()}
        assert isinstance(read_replicas([urls[Role.READ]])[urls[Role.READ]], ReplicaStatus)
        for role in (Role.READ, Role.APPEND):
            with pytest.raises(PermissionDenied, match=f"{role} lacks the role admin in tenant default"):
                promote([urls[role]])
            peer, requests = Peer(urls[role]), SimpleQueue[None]()
            with pytest.raises(PermissionDenied, match=f"{role} has the role admin in no tenant"):
                list(peer.follow(iter(requests.get, None), lambda cancel: None))  # before it says anything
            requests.put(None)
            peer.close()
        assert promote([urls[Role.ADMIN]]).epoch == 1
        assert store.status().leads


def test_half_a_list_of_documents_is_refused(tmp_path: Path) -> None:
    with make_replica(tmp_path / "chat") as store, serving({"chat": store}) as server:
        peer = Peer(f"grpc://{server.listening[0]}/chat")
        first = peer.first_request(0, 1)
        first.more = True
        with pytest.raises(InvalidArgument, match="held: the stream ended before the last part"):
            list(peer.follow([first], lambda cancel: None))
        peer.close()


def test_the_copy_with_the_most_leads_if_enough_answer(tmp_path: Path) -> None:
    stores = [make_replica(tmp_path / name / "chat", copies=2) for name in "abc"]
    with serving({"chat": stores[0]}) as a, serving({"chat": stores[1]}) as b, serving({"chat": stores[2]}) as c:
        urls = [f"grpc://{each.listening[0]}/chat" for each in (a, b, c)]
        assert promote(urls).leader == urls[0]
        assert has_leader(read_replicas(urls).values())
        leader = stores[0]
        following = Following(leader, stores[2])
        leader.feed.copies = 1
        leader.append([1])
        following.receive()
        following.close()
        a.stop()
        done = promote(urls)
        assert (done.leader, done.epoch) == (urls[2], 2)
        assert isinstance(done.found[urls[0]], SuffolkError)
        b.stop()
        with pytest.raises(
            Unavailable, match="1 of 3 copies answer, and 2 must, so that no acknowledged change is lost"
        ):
            promote(urls)
        assert not has_leader(read_replicas(urls[:2]).values())
    for store in stores:
        store.close()


def test_copies_that_differ_stop_a_promotion(tmp_path: Path) -> None:
    with (
        make_replica(tmp_path / "a" / "chat", copies=2) as first,
        make_replica(tmp_path / "b" / "chat", copies=3) as second,
        serving({"chat": first}) as a,
        serving({"chat": second}) as b,
    ):
        with pytest.raises(InvalidArgument, match=r"copies differ \(.* 2, .* 3\); start all servers with the same"):
            promote([f"grpc://{each.listening[0]}/chat" for each in (a, b)])
        assert first.state.epoch == second.state.epoch == 0


def test_a_full_disk_of_a_follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "COPY_SECONDS", 1.0)
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with make_replica(tmp_path / "chat", copies=2) as leader, serving({"chat": leader}) as server:
            promote([f"grpc://{server.listening[0]}/chat"])
            create_live_store(disk / "chat", vocab_size=40).close()
            filler = disk / "filler"
            filler.write_bytes(bytes(800_000))
            peer = Peer(f"grpc://{server.listening[0]}", "chat")
            with open_replica(disk / "chat", replace(PLAIN, durability="always"), 2, [peer]) as follower:
                until(lambda: leader.feed.followers() == 1)
                _fill(leader)
                until(lambda: "No space left on device" in follower.problem)
                filler.unlink()
                until(lambda: leader.feed.followers() == 1)
                leader.append([7, 7])
                assert contents(follower) == contents(leader)
                assert follower.problem == ""
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def _fill(leader: ReplicaStore) -> None:
    """Append until the follower's disk is full."""
    while leader.feed.followers():
        with suppress(SuffolkError):
            leader.append(np.full(4000, 3))
