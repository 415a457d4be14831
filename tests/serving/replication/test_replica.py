"""A replica: what it refuses, what it keeps on disk, and which of several leads."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from suffolk.datastore.errors import (
    DeadlineExceeded,
    InvalidArgument,
    PermissionDenied,
    ResourceExhausted,
    SuffolkError,
    Unavailable,
    Unsupported,
)
from suffolk.serving.live_store import log
from suffolk.serving.live_store.check_log import check_log
from suffolk.serving.live_store.contents import live_pages
from suffolk.serving.live_store.store import create_live_store, open_live_store
from suffolk.serving.replication import feed
from suffolk.serving.replication.follower import Follower, open_replica
from suffolk.serving.replication.messages import ReplicaStatus
from suffolk.serving.replication.peer import Peer, read_replicas
from suffolk.serving.replication.replica import ReplicaSettings, ReplicaStore
from suffolk.serving.transport.access_file import add_token
from suffolk.serving.transport.identity import Role
from tests.support.draft_server import serving
from tests.support.replica_pair import PLAIN, Following, contents, follow, lead, make_replica, register_at
from tests.support.waiting import until


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[ReplicaStore, ReplicaStore]]:
    """A leader and a store that may follow it."""
    with make_replica(tmp_path / "x") as leader, make_replica(tmp_path / "y") as follower:
        lead(leader)
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
    assert position_of(follower) == position_of(leader)


def position_of(store: ReplicaStore) -> tuple[int, int]:
    """Position and digest."""
    return store.status().position, store.status().digest


def test_a_removal_that_nobody_else_knows_is_undone(pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    leader, follower = pair
    for name in "abc":
        leader.append([1, ord(name) % 40], id=name, group="g")
    Following(leader, follower).close()
    leader.append([7], id="lost", group="g", replace=True)
    lead(follower)
    follower.append([2], id="d")
    before = leader.status().id
    with pytest.raises(Unavailable, match="x has other documents than its leader, and is filled again"):
        Following(follower, leader)
    assert leader.status().id != before  # so it is in step no more, until it is filled
    Following(follower, leader).close()
    assert contents(leader) == contents(follower)
    assert sorted(str(name) for name, _ in contents(leader)) == ["a", "b", "c", "d"]
    assert leader.group_stats("g").documents == 3
    assert position_of(leader) == position_of(follower)
    leader.close()
    with make_replica(leader.path) as again:
        assert contents(again) == contents(follower)


def test_a_deposed_leader_takes_no_changes_before_it_says_what_it_has(pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    first, second = pair
    first.append([1], id="both")
    Following(first, second).close()
    lead(second)
    hello = first.member.hello(2)
    with pytest.raises(Unavailable, match="x is a copy here, and follows the leader of epoch 2; nothing is changed"):
        first.append([2])
    with pytest.raises(Unavailable, match="nothing is changed"):
        first.delete(ids=["both"])
    assert len(hello.held) == 1
    follow(second, first).close()
    assert contents(first) == contents(second) == [("both", [1])]


def test_a_follower_takes_no_changes_of_another_epoch(pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    leader, follower = pair
    following = Following(leader, follower)
    lead(follower)
    leader.append([1])
    with pytest.raises(Unavailable, match="y does not follow in epoch 1 any more"):
        following.receive()
    with pytest.raises(Unavailable, match="here leads y in epoch 1, and this copy knows of another leader"):
        follower.member.begin_following(1, False, "here")
    with pytest.raises(Unavailable, match="x leads in epoch 1, and its follower is in 2"):
        leader.member.followed("there", follower.member.hello(2)).__enter__()
    following.close()


def test_a_copy_in_step_leads_and_another_one_only_at_a_loss(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[ReplicaStore, ReplicaStore]
) -> None:
    leader, follower = pair
    leader.append([1])
    following = Following(leader, follower)
    with pytest.raises(Unavailable, match=r"y: this copy has changes below 1099511627777 .* give --accept-loss"):
        follower.member.lead(accept_loss=False)
    leader.member.tick(dict)  # now it is in step
    assert len(register_at(leader.path.parent).read().value.in_step) == 2
    monkeypatch.setattr(feed, "COPY_SECONDS", 0.01)
    with pytest.raises(DeadlineExceeded, match="1 of 2 copies have the change"):
        leader.append([2])
    assert follower.member.lead(accept_loss=False) == ""
    assert follower.status().leads
    leader.member._read(0)
    leader.member.tick(dict)
    with pytest.raises(Unavailable, match="x is led by another copy since epoch 2; nothing is changed"):
        leader.append([3])
    following.close()


def test_a_leader_never_leads_on_after_a_restart(tmp_path: Path) -> None:
    with make_replica(tmp_path / "x") as store:
        assert store.member.tick(dict) is None
        first = store.append([1]).sequence
        assert first == 1 << 40
    with make_replica(tmp_path / "x", max_lag=1.0) as store:
        assert not store.status().leads
        with pytest.raises(Unavailable, match="x has no leader yet; nothing is changed"):
            store.append([2])
        with pytest.raises(Unavailable, match="is not known to be in step since it was started, and max_lag is 1 s"):
            store.lookup([1])
        store.member.tick(dict)
        store.member._heard -= 10
        store.member.tick(dict)  # no other copy is in step
        assert store.append([2]).sequence == 2 << 40
        assert store.lookup([1]).count == 1


def test_a_started_copy_waits_for_all_that_were_in_step(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[ReplicaStore, ReplicaStore]
) -> None:
    leader, follower = pair
    following = Following(leader, follower)
    leader.member.tick(dict)
    monkeypatch.setattr(feed, "COPY_SECONDS", 0.01)
    with pytest.raises(DeadlineExceeded):
        leader.append([1])  # the follower does not get it
    following.close()
    for store in pair:
        store.close()
    with make_replica(leader.path) as first, make_replica(follower.path) as second:
        status = {store: store.status() for store in (first, second)}
        for store in (first, second):
            store.member.tick(dict)
            store.member._heard -= 10
        second.member.tick(dict)
        assert "start the copies" in second.problem
        second.member.tick(lambda: {status[first].id: status[first]})
        assert second.problem == "y has no leader yet; another copy has more changes"
        first.member.tick(lambda: {status[second].id: status[second]})
        assert first.status().leads


def test_two_copies_with_one_id_neither_lead_nor_follow(tmp_path: Path) -> None:
    with make_replica(tmp_path / "x"):
        pass
    shutil.copytree(tmp_path / "x", tmp_path / "y")
    with make_replica(tmp_path / "x") as first, make_replica(tmp_path / "y") as second:
        second.member.tick(lambda: {first.status().id: first.status()})
        assert second.problem.startswith("another server has a copy of y with the same id; remove live/replica.json")
        assert not second.status().leads


def test_a_copy_with_documents_is_no_beginning(tmp_path: Path) -> None:
    with make_replica(tmp_path / "x") as store:
        lead(store)
        store.append([1])
    with make_replica(tmp_path / "x", register=register_at(tmp_path / "elsewhere")) as store:
        store.member.tick(dict)
        assert store.problem.startswith("x has documents, and the register has no leader")
        lead(store)
        assert store.append([2]).sequence == 2 << 40  # numbers rise though the register is new


def test_a_difference_is_found_and_the_copy_filled_again(pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    leader, follower = pair
    leader.append([1, 2], id="a")
    following = Following(leader, follower)
    leader.member.tick(dict)
    [page] = live_pages(follower._live, 1 << 60)
    follower._writer.clear()
    follower._writer.repeat(replace(page, tokens=np.array([1, 3], np.uint16)))
    with pytest.raises(Unavailable, match="y has other documents than its leader, and is filled again"):
        following.receive()
    assert follower.member.differences == 1
    assert not follower.status().in_step
    following.close()
    Following(leader, follower).close()
    assert contents(follower) == contents(leader) == [("a", [1, 2])]
    assert leader.member.differences == 1


def test_a_copy_with_a_wrong_clock_removes_nothing_too_early(tmp_path: Path) -> None:
    settings = replace(PLAIN, ttl_seconds=60)
    with make_replica(tmp_path / "x", settings) as leader, make_replica(tmp_path / "y", settings) as follower:
        lead(leader)
        leader.append([1])
        follower._writer.set_time(leader.now() + 7200)
        Following(leader, follower).close()
        lead(follower)
        follower._upkeep.work()
        assert contents(follower) == contents(leader) == [(None, [1])]


def test_a_leader_with_a_full_disk_lets_another_one_lead(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[ReplicaStore, ReplicaStore]
) -> None:
    leader, follower = pair
    following = Following(leader, follower)
    leader.member.tick(dict)

    def refuse(descriptor: int, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(log, "write_all", refuse)
        with pytest.raises(ResourceExhausted):
            leader.append([1])
    leader.member.tick(dict)
    assert not leader.status().leads
    following.close()
    follower.member._read(0)
    follower.member.tick(lambda: {leader.status().id: leader.status()})
    assert follower.status().leads


def test_one_copy_counts_once_however_often_it_connects() -> None:
    changes = feed.Feed("x", copies=3)
    changes.begin(["f"])
    with changes.subscribed("f", "f:1", 1, 0) as first:
        changes.confirm(first, 5)
        with changes.subscribed("f", "f:2", 1, 0) as second:
            changes.confirm(second, 5)
            changes.confirm(first, 9)
            assert first.ended == "the follower has connected again"
            assert not changes.acknowledge(5, reign=1)  # 2 of 3 copies


def test_no_change_of_an_earlier_reign_is_acknowledged() -> None:
    changes = feed.Feed("x", copies=1)
    changes.begin([])
    reign = changes.require_copies()
    changes.end("another one leads")
    changes.begin([])
    with pytest.raises(DeadlineExceeded, match="so it may stay or vanish"):
        changes.await_copies(1, reign)


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
        lead(first)
        first.append([1], group="g")
        first.delete(group="g")
        lead(second)
        second.append([2], group="g")
        Following(second, first).close()
        assert first.group_stats("g").tokens == 1
    check_log(tmp_path / "x")


def test_a_copy_is_not_opened_by_itself(tmp_path: Path, pair: tuple[ReplicaStore, ReplicaStore]) -> None:
    pair[0].close()
    with pytest.raises(
        InvalidArgument, match="is a copy of a store on other servers; serve it with --register, or remove"
    ):
        open_live_store(tmp_path / "x")
    with pytest.raises(Unsupported, match="has copies on other servers, and published files would have none"):
        pair[1].seal()
    with create_live_store(tmp_path / "sealed", vocab_size=40) as sealed:
        sealed.append([1])
        sealed.seal()
    with pytest.raises(
        Unsupported, match="has published files, which have no copies elsewhere; serve it without --register"
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


def test_a_follower_without_progress_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    changes = feed.Feed("x", copies=1, clock=lambda: now)
    changes.begin(["working", "silent"])
    with changes.subscribed("working", "a", 1, 0) as working, changes.subscribed("silent", "b", 1, 0) as silent:
        changes.confirm(working, 1)
        changes.confirm(silent, 1)
        now = 3.0
        changes.confirm(working, 1)
        assert changes.silent() == ["silent"]
        now = 6.0
        with pytest.raises(Unavailable, match="the follower confirmed nothing for 5 s"):
            changes.take(silent, 0)
        assert changes.silent() == ["silent", "working"]


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
            peer, requests = Peer(urls[role]), SimpleQueue[None]()
            with pytest.raises(PermissionDenied, match=f"{role} lacks the role admin in tenant default"):
                peer.lead(accept_loss=True)
            with pytest.raises(PermissionDenied, match=f"{role} has the role admin in no tenant"):
                list(peer.follow(iter(requests.get, None), lambda cancel: None))  # before it says anything
            requests.put(None)
            peer.close()
        with closing(Peer(urls[Role.ADMIN])) as peer:
            assert "are lost" in peer.lead(accept_loss=True)
        assert store.status().leads


def test_half_a_list_of_documents_is_refused(tmp_path: Path) -> None:
    with make_replica(tmp_path / "chat") as store, serving({"chat": store}) as server:
        peer = Peer(f"grpc://{server.listening[0]}/chat")
        first = peer.first_request()
        with pytest.raises(InvalidArgument, match="replica has 0 characters; it must have 1 to 128"):
            list(peer.follow([first], lambda cancel: None))
        first.replica, first.more = "f", True
        with pytest.raises(InvalidArgument, match="held: the stream ended before the last part"):
            list(peer.follow([first], lambda cancel: None))
        first.more, first.held = False, np.array([[2, 0], [1, 0]], "<u8").tobytes()
        with pytest.raises(InvalidArgument, match="held: the numbers do not rise"):
            list(peer.follow([first], lambda cancel: None))
        peer.close()


def test_the_register_decides_between_copies_that_start_at_once(tmp_path: Path) -> None:
    register = register_at(tmp_path)
    stores = [make_replica(tmp_path / name / "chat", register=register) for name in "abcd"]
    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(lambda store: _try_to_tick(store), stores))
    assert sum(store.status().leads for store in stores) == 1
    for store in stores:
        store.close()


def _try_to_tick(store: ReplicaStore) -> None:
    with suppress(Unavailable):
        store.member.tick(dict)


def test_a_full_disk_of_a_follower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "COPY_SECONDS", 1.0)
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        register = register_at(tmp_path)
        with make_replica(tmp_path / "chat", copies=2) as leader, serving({"chat": leader}) as server:
            follower = Follower(leader, [])
            leader.before_close(follower.close)
            until(lambda: leader.status().leads)
            create_live_store(disk / "chat", vocab_size=40).close()
            filler = disk / "filler"
            filler.write_bytes(bytes(800_000))
            peer = Peer(f"grpc://{server.listening[0]}", "chat")
            settings = replace(PLAIN, durability="always")
            with open_replica(disk / "chat", settings, register, ReplicaSettings(2), [peer]) as copy:
                until(lambda: copy.status().in_step)
                _fill(leader)
                until(lambda: "No space left on device" in copy.problem)
                filler.unlink()
                until(lambda: leader.feed.followers() == 1)
                leader.append([7, 7])
                assert contents(copy) == contents(leader)
                assert copy.problem == ""
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def _fill(leader: ReplicaStore) -> None:
    """Append until the follower's disk is full."""
    while leader.feed.followers():
        with suppress(SuffolkError):
            leader.append(np.full(4000, 3))
