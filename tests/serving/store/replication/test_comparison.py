"""A copy that connects gets what it lacks, loses what others have not, and is filled again if it differs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from suffolk.datastore.errors import (
    Unavailable,
    Unsupported,
)
from suffolk.serving.store.live_store.check_log import check_log
from suffolk.serving.store.live_store.contents import live_pages
from suffolk.serving.store.live_store.record import encode
from suffolk.serving.store.live_store.store import create_live_store
from suffolk.serving.store.replication.messages import records_of
from suffolk.serving.store.replication.replicated_store import ReplicatedStore
from tests.support.replica_pair import Following, contents, lead, make_replica


def test_the_last_document_survives_a_reconnection(pair: tuple[ReplicatedStore, ReplicatedStore]) -> None:
    leader, follower = pair
    leader.append([1, 2], id="first")
    Following(leader, follower).close()
    Following(leader, follower).close()
    assert contents(follower) == contents(leader) == [("first", [1, 2])]
    leader.delete(ids=["first"])
    Following(leader, follower).close()
    assert contents(follower) == []
    assert position_of(follower) == position_of(leader)


def test_a_removal_that_nobody_else_knows_is_undone(pair: tuple[ReplicatedStore, ReplicatedStore]) -> None:
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
    assert leader.status().id != before  # so it is in sync no more, until it is filled
    Following(follower, leader).close()
    assert contents(leader) == contents(follower)
    assert sorted(str(name) for name, _ in contents(leader)) == ["a", "b", "c", "d"]
    assert leader.group_stats("g").documents == 3
    assert position_of(leader) == position_of(follower)
    leader.close()
    with make_replica(leader.path) as again:
        assert contents(again) == contents(follower)


def test_a_difference_is_found_and_the_copy_filled_again(pair: tuple[ReplicatedStore, ReplicatedStore]) -> None:
    leader, follower = pair
    leader.append([1, 2], id="a")
    following = Following(leader, follower)
    leader.member.tick(dict)
    [page] = live_pages(follower._live, 1 << 60)
    follower.writer.clear()
    [record] = records_of(encode(replace(page, tokens=np.array([1, 3], np.uint16))))
    follower.writer.repeat(record)
    with pytest.raises(Unavailable, match="y has other documents than its leader, and is filled again"):
        following.receive()
    assert follower.member.differences == 1
    assert not follower.status().in_sync
    following.close()
    Following(leader, follower).close()
    assert contents(follower) == contents(leader) == [("a", [1, 2])]
    assert leader.member.differences == 1


def test_other_tokens_and_other_documents_are_refused(
    tmp_path: Path, pair: tuple[ReplicatedStore, ReplicatedStore]
) -> None:
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


def position_of(store: ReplicatedStore) -> tuple[int, int]:
    """Position and digest."""
    return store.status().position, store.status().digest
