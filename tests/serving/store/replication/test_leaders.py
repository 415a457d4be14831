"""Which of several copies leads, and what stops one that did."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from suffolk.datastore.errors import (
    DeadlineExceeded,
    ResourceExhausted,
    Unavailable,
)
from suffolk.serving.store.live_store import log
from suffolk.serving.store.live_store.identity import log_folder
from suffolk.serving.store.replication import feed
from suffolk.serving.store.replication.replicated_store import ReplicatedStore
from tests.support.replica_pair import Following, contents, follow, lead, make_replica, register_at


def test_a_deposed_leader_takes_no_changes_before_it_says_what_it_has(
    pair: tuple[ReplicatedStore, ReplicatedStore],
) -> None:
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


def test_a_follower_takes_no_changes_of_another_epoch(pair: tuple[ReplicatedStore, ReplicatedStore]) -> None:
    leader, follower = pair
    following = Following(leader, follower)
    lead(follower)
    leader.append([1])
    with pytest.raises(Unavailable, match="y does not follow in epoch 1 any more"):
        following.receive()
    with pytest.raises(Unavailable, match="here leads y in epoch 1, and this copy knows of another leader"):
        follower.member.begin_following(1, False, "here")
    with pytest.raises(Unavailable, match="x leads in epoch 1, and its follower is in 2"):
        leader.member.followed(follower.member.hello(2)).__enter__()
    following.close()


def test_a_copy_in_sync_leads_and_another_one_only_at_a_loss(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[ReplicatedStore, ReplicatedStore]
) -> None:
    leader, follower = pair
    leader.append([1])
    following = Following(leader, follower)
    with pytest.raises(Unavailable, match=r"y: this copy has changes below 1099511627777 .* give --accept-loss"):
        follower.member.lead(accept_loss=False)
    leader.member.tick(dict)  # now it is in sync
    assert len(register_at(leader.path.parent).read().value.in_sync) == 2
    monkeypatch.setattr(feed, "COPY_SECONDS", 0.01)
    with pytest.raises(DeadlineExceeded, match="1 of 2 copies have the change"):
        leader.append([2])
    assert follower.member.lead(accept_loss=False) == ""
    assert follower.status().leads
    leader.member.read(0)
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
        with pytest.raises(Unavailable, match="is not known to be in sync since it was started, and max_lag is 1 s"):
            store.lookup([1])
        store.member.tick(dict)
        store.member._heard -= 10
        store.member.tick(dict)  # no other copy is in sync
        assert store.append([2]).sequence == 2 << 40
        assert store.lookup([1]).count == 1


def test_a_started_copy_waits_for_all_that_were_in_sync(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[ReplicatedStore, ReplicatedStore]
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


@pytest.mark.parametrize("damage", ["put back", "tail lost", "empty"])
def test_a_leader_that_lost_something_does_not_lead_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pair: tuple[ReplicatedStore, ReplicatedStore], damage: str
) -> None:
    leader, follower = pair
    leader.append([1], id="1")
    shutil.copytree(leader.path, tmp_path / "saved")
    following = Following(leader, follower)
    leader.member.tick(dict)
    with monkeypatch.context() as patched:
        patched.setattr(feed, "COPY_SECONDS", 0.0)
        for change in (partial(leader.append, [2], id="2"), partial(leader.delete, ids=["1"])):
            with pytest.raises(DeadlineExceeded):
                change()
    following.receive()
    following.close()
    leader.close()
    if damage == "tail lost":
        log = max(log_folder(leader.path).glob("*.log"))
        log.write_bytes(log.read_bytes()[:-1])
    else:
        shutil.rmtree(leader.path)
    if damage == "put back":
        shutil.copytree(tmp_path / "saved", leader.path)
    with make_replica(leader.path) as again:
        again.member._heard -= 10
        again.member.tick(lambda: {follower.status().id: follower.status()})
        assert not again.status().leads
        with pytest.raises(Unavailable, match="give --accept-loss"):
            again.member.lead(accept_loss=False)
        follower.member._heard -= 10
        follower.member.tick(lambda: {again.status().id: again.status()})
        assert follower.status().leads
        follow(follower, again).close()
        assert contents(again) == contents(follower) == [("2", [2])]


def test_two_copies_with_one_id_neither_lead_nor_follow(tmp_path: Path) -> None:
    with make_replica(tmp_path / "x"):
        pass
    shutil.copytree(tmp_path / "x", tmp_path / "y")
    with make_replica(tmp_path / "x") as first, make_replica(tmp_path / "y") as second:
        second.member.tick(lambda: {first.status().id: first.status()})
        assert second.problem.startswith("another server has a copy of y of this id; remove live/replica.json")
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


def test_a_leader_with_a_full_disk_lets_another_one_lead(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[ReplicatedStore, ReplicatedStore]
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
    follower.member.read(0)
    follower.member.tick(lambda: {leader.status().id: leader.status()})
    assert follower.status().leads


def test_the_register_decides_between_copies_that_start_at_once(tmp_path: Path) -> None:
    register = register_at(tmp_path)
    stores = [make_replica(tmp_path / name / "chat", register=register) for name in "abcd"]
    with ThreadPoolExecutor(len(stores)) as pool:
        list(pool.map(lambda store: _try_to_tick(store), stores))
    assert sum(store.status().leads for store in stores) == 1
    for store in stores:
        store.close()


def _try_to_tick(store: ReplicatedStore) -> None:
    with suppress(Unavailable):
        store.member.tick(dict)


def test_a_leader_that_hears_no_copy_takes_none_out_of_step(tmp_path: Path) -> None:
    with ExitStack() as stack:
        leader, near, far = (stack.enter_context(make_replica(tmp_path / name, copies=2)) for name in "xyz")
        lead(leader)
        followings = [Following(leader, near), Following(leader, far)]
        leader.member.tick(dict)
        in_sync = {store.member.id for store in (leader, near, far)}
        leader.feed._progress = dict.fromkeys(in_sync, float("-inf"))
        leader.member.tick(dict)
        assert set(register_at(tmp_path).read().value.in_sync) == in_sync
        followings[0].receive()
        leader.member.tick(dict)
        assert set(register_at(tmp_path).read().value.in_sync) == {leader.member.id, near.member.id}
        for each in followings:
            each.close()
