"""An append that is repeated with its key is made once: at once, after a restart, and at another copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.serving.store.live_store import batch
from suffolk.serving.store.live_store.record import KeyedAppend
from suffolk.serving.store.live_store.store import create_live_store, open_live_store
from tests.support.replica_pair import Following, contents, follow, lead, make_replica


def test_a_repeat_changes_nothing(tmp_path: Path) -> None:
    with create_live_store(tmp_path / "x", vocab_size=40) as store:
        first = store.append([1, 2], id="a", group="g", key="k")
        assert store.append([1, 2], id="a", group="g", key="k") == first
        store.append([3], group="g", replace=True, key="other")
        assert store.append([1, 2], id="a", group="g", key="k") == first  # it does not return
        with pytest.raises(InvalidArgument, match="an append of 1 documents with 2 tokens had this key, and this one"):
            store.append([1], key="k")
        for bad in ("", "k" * 129, 7):
            with pytest.raises(InvalidArgument, match="give a text of 1 to 128 characters"):
                store.append([1], key=bad)  # type: ignore[arg-type]
        store.scrub()
    with open_live_store(tmp_path / "x") as store:
        assert store.append([1, 2], id="a", group="g", key="k").sequence == first.sequence
        assert store.stats().documents == 1


def test_another_copy_knows_the_keys_of_its_leader_alone(tmp_path: Path) -> None:
    with make_replica(tmp_path / "x") as leader, make_replica(tmp_path / "y") as follower:
        lead(leader)
        early = leader.append([1], id="early", key="early")
        following = Following(leader, follower)
        late = leader.append([2], id="late", key="late")
        following.receive()
        following.close()
        leader.append([3], id="lost", key="lost")  # the follower does not get it
        lead(follower)
        assert follower.append([1], id="early", key="early").sequence == early.sequence
        assert follower.append([2], id="late", key="late").sequence == late.sequence
        follow(follower, leader).close()
        lead(leader)
        leader.append([3], id="lost", key="lost")  # it has vanished, so it is made again
        assert sorted(str(name) for name, _ in contents(leader)) == ["early", "late", "lost"]


def test_keys_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "MOST_KEYS", 2)
    keys = batch.AppendKeys(KeyedAppend(bytes([each] * 16), each, 1, 1, 0, 100) for each in (1, 2, 3))
    assert [keys.find(bytes([each] * 16), 1, 1) is None for each in (1, 2, 3)] == [True, False, False]
    keys.add([KeyedAppend(bytes([4] * 16), 4, 1, 1, 0, 101 + batch.KEY_SECONDS)])
    assert len(keys.all()) == 2
    keys.add([KeyedAppend(batch.FORGET)])
    assert len(keys.all()) == 1


def test_what_the_store_has_of_an_id(tmp_path: Path) -> None:
    with create_live_store(tmp_path / "x", vocab_size=40) as store:
        store.append([1, 2], id="a")
        store.flush()
        second = store.append([1, 2, 3], id="a", group="g")
        assert (store.get("a").documents, store.get("a").tokens, store.get("a").sequence) == (2, 5, second.sequence)
        with pytest.raises(NotFound, match="datastore x has no document with the id 'b'"):
            store.get("b")
