"""A change is acknowledged when each copy in sync has it. Slow and silent copies are dropped."""

from __future__ import annotations

from functools import partial

import pytest

from suffolk.datastore.errors import (
    DeadlineExceeded,
    NotFound,
    Unavailable,
)
from suffolk.serving.store.replication import feed
from suffolk.serving.store.replication.replicated_store import ReplicatedStore
from tests.support.replica_pair import Following, contents


def test_one_copy_counts_once_however_often_it_connects() -> None:
    changes = feed.Feed("x", write_quorum=3)
    changes.begin(["f"])
    with changes.subscribed("f", 1, 0) as first:
        changes.confirm(first, 5)
        with changes.subscribed("f", 1, 0) as second:
            changes.confirm(second, 5)
            changes.confirm(first, 9)
            assert first.ended == "the follower has connected again"
            assert not changes.try_acknowledge(5, reign=1)  # 2 of 3 copies


def test_no_change_of_an_earlier_reign_is_acknowledged() -> None:
    changes = feed.Feed("x", write_quorum=1)
    changes.begin([])
    reign = changes.require_copies()
    changes.end("another one leads")
    changes.begin([])
    with pytest.raises(DeadlineExceeded, match="so it may stay or vanish"):
        changes.await_copies(1, reign)


def test_a_slow_copy_is_waited_for_before_it_is_in_sync() -> None:
    changes = feed.Feed("x", write_quorum=1)
    changes.begin([])
    with changes.subscribed("f", 10, 0) as slow:
        changes.confirm(slow, 5)
        assert changes.try_acknowledge(10, reign=1)
        assert changes.admit() == frozenset()  # it lacks what is acknowledged
        assert not changes.try_acknowledge(11, reign=1)
        changes.confirm(slow, 10)
        assert changes.admit() == {"f"}


def test_a_copy_that_is_lost_while_it_comes_in_sync_is_waited_for_no_more(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[ReplicatedStore, ReplicatedStore]
) -> None:
    leader, follower = pair
    following = Following(leader, follower)
    leader.append([1])
    leader.member.tick(dict)
    assert len(leader.member.entry.value.in_sync) == 1
    monkeypatch.setattr(feed, "COPY_SECONDS", 0.0)
    with pytest.raises(DeadlineExceeded, match="1 of 2 copies have the change"):
        leader.append([2])
    following.close()
    leader.feed._progress[follower.status().id] -= 10
    leader.member.tick(dict)
    assert leader.append([3]).documents == 1


def test_a_slow_follower_is_dropped(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[ReplicatedStore, ReplicatedStore]
) -> None:
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
    changes = feed.Feed("x", write_quorum=1, clock=lambda: now)
    changes.begin(["working", "silent"])
    with changes.subscribed("working", 1, 0) as working, changes.subscribed("silent", 1, 0) as silent:
        changes.confirm(working, 1)
        changes.confirm(silent, 1)
        now = 3.0
        changes.confirm(working, 1)
        assert changes.silent() == {"silent"}
        now = 6.0
        with pytest.raises(Unavailable, match="the follower confirmed nothing for 5 s"):
            changes.take(silent, 0)
        assert changes.silent() == {"silent", "working"}


def test_what_a_leader_says_is_what_its_copies_have(
    monkeypatch: pytest.MonkeyPatch, pair: tuple[ReplicatedStore, ReplicatedStore]
) -> None:
    leader, follower = pair
    leader.append([1], id="a", group="g")
    following = Following(leader, follower)
    leader.member.tick(dict)
    assert leader.get("a").documents == 1
    monkeypatch.setattr(feed, "COPY_SECONDS", 0.0)
    for ask in (partial(leader.append, [2], id="b"), partial(leader.get, "b"), partial(leader.delete, group="g")):
        with pytest.raises(DeadlineExceeded):
            ask()
    for ask in (partial(leader.get, "a"), partial(leader.delete, group="g")):  # it is gone only here
        with pytest.raises(DeadlineExceeded):
            ask()
    monkeypatch.undo()
    following.receive()
    assert leader.get("b").documents == 1
    for ask in (partial(leader.get, "a"), partial(leader.delete, group="g")):
        with pytest.raises(NotFound):
            ask()
    following.close()
