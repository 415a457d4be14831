"""Appends and deletions through the address of several servers with copies of a live store, and with shards."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import suffolk
from suffolk.datastore.appendable import Appended, LiveDeletion
from suffolk.datastore.errors import DeadlineExceeded, InvalidArgument, NotFound, Unavailable, Unsupported
from suffolk.serving.clients.fanout import appendable
from suffolk.serving.clients.fanout.appendable import AppendableFanout, find_leader
from suffolk.serving.clients.fanout.replica_client import ReplicaClient
from suffolk.serving.clients.fanout.replica_set import ReplicaSet
from suffolk.serving.clients.fanout.topology import ReplicaAddress, Shard, Topology, shard_of, write_topology
from suffolk.serving.clients.remote_datastore import RemoteDatastore
from suffolk.serving.clients.text_appender import TextAppender
from suffolk.serving.store.replication.replicated_store import ReplicatedStore
from tests.support.draft_server import serving
from tests.support.replica_pair import contents, lead, make_replica, register_at
from tests.support.waiting import HANG

SHARDS = COPIES = 2


class Cluster:
    """SHARDS shards of COPIES replicas each, of which the first ones lead after ``lead_first``. Appends need one copy."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.stores: list[list[ReplicatedStore]] = []
        self.urls: list[list[str]] = []
        for shard in range(SHARDS):
            register = register_at(folder / str(shard))
            folders = [folder / f"{shard}-{copy}" / "chat" for copy in range(COPIES)]
            stores = [make_replica(each, register=register) for each in folders]
            servers = [stack.enter_context(serving({"chat": stack.enter_context(store)})) for store in stores]
            self.stores.append(stores)
            self.urls.append([f"grpc://{server.listening[0]}/chat" for server in servers])

    def lead_first(self) -> None:
        for first, _ in self.stores:
            lead(first)

    @property
    def address(self) -> str:
        hosts = [",".join(url.removeprefix("grpc://").removesuffix("/chat") for url in urls) for urls in self.urls]
        return f"grpc://{'+'.join(hosts)}/chat"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def open_all(address: str) -> AppendableFanout:
    store = suffolk.open(address, deadline=HANG, append=True)
    assert isinstance(store, AppendableFanout)
    return store


def test_a_group_is_in_one_shard(cluster: Cluster) -> None:
    cluster.lead_first()
    with open_all(cluster.address) as store:
        for group in "abcdef":
            store.append([1, 2, 3], id=f"{group}/1", group=group)
            store.append_batch([suffolk.Document(f"{group}/2", {}, np.array([4]))], [group])
            assert store.group_stats(group).documents == 2
        for number in range(8):
            store.append([5, number])
        stats, each = store.stats(), [leader.stats() for leader, _ in cluster.stores]
        assert stats.documents == 20
        assert stats.next_sequence == max(shard.next_sequence for shard in each)
        assert stats.oldest_time == min(shard.oldest_time for shard in each) > 0
        for shard, (leader, _) in enumerate(cluster.stores):
            found = {str(name)[0] for name, _ in contents(leader) if name}
            assert found == {group for group in "abcdef" if shard_of("default", group, SHARDS) == shard} != set()
        with pytest.raises(
            InvalidArgument, match="the groups of 6 documents are in 2 shards; append the documents of each"
        ):
            store.append_batch([suffolk.Document(None, {}, np.array([1]))] * 6, list("abcdef"))
        assert store.append([6], group="a", replace=True).replaced == 2
        deleted = store.delete(ids=["b/1", "c/2", "none"])
        assert (deleted.documents, deleted.unknown_ids) == (2, ("none",))
        store.delete(group="a")
        with pytest.raises(NotFound):
            store.delete(group="a")


def test_an_empty_key_and_a_deadline_of_0_are_refused_as_by_one_server(cluster: Cluster) -> None:
    cluster.lead_first()
    for address in (cluster.address, cluster.urls[0][0]):
        with (
            suffolk.open(address, deadline=HANG, append=True) as store,
            pytest.raises(InvalidArgument, match="key is ''"),
        ):
            store.append_batch([suffolk.Document(None, {}, np.array([1]))], key="")
        with pytest.raises(InvalidArgument, match="deadline is 0 s; it must be above 0"):
            suffolk.open(address, deadline=0, append=True)


def test_a_query_for_a_group_goes_to_its_shard(cluster: Cluster) -> None:
    cluster.urls = [urls[:1] for urls in cluster.urls]  # the other copies do not follow
    cluster.lead_first()
    with open_all(cluster.address) as store:
        for group in "abcdef":
            store.append([1, 2, ord(group) - 90], group=group)
        for group in "abcdef":
            [tree] = store.draft_batch([[1, 2]], group=group, scope="group")
            assert tree.tokens.tolist() == [ord(group) - 90]
            assert store.lookup([1, 2], group=group, scope="group").count == 1
            assert len(store.occurrences([1, 2], group=group, scope="group")) == 1
            assert store.lookup([1, 2], group=group, scope="store").count == 6
            for search in (store.draft, store.lookup, store.occurrences):
                with pytest.raises(Unsupported, match="2 shards cannot search groups with scope 'group_first'"):
                    search([1, 2], group=group)
        with pytest.raises(Unsupported, match="name one group for all contexts"):
            store.lookup_batch([[1], [2]], group=["a", "b"], scope="group")


def test_appends_follow_the_leader(cluster: Cluster) -> None:
    first, second = cluster.stores[0]
    address = cluster.address.partition("+")[0] + "/chat"
    with open_all(address) as store:
        with pytest.raises(Unavailable, match="no copy leads, so nothing is changed .all of them answer."):
            store.append([1])
        lead(first)
        store.append([1])
        lead(second)
        first.member.read(0)
        first.member.tick(dict)
        with TextAppender(store) as appender:
            assert appender.add(np.array([2], np.int32))
        with pytest.raises(Unsupported, match="published files would have none; do not flush it"):
            store.flush()
        assert (contents(first), contents(second)) == ([(None, [1])], [(None, [2])])


def test_an_append_of_unknown_outcome_is_made_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.lead_first()
    append, answers = RemoteDatastore.append_once, iter([True, True, False])

    def append_without_answer(remote: RemoteDatastore, *arguments: Any) -> Appended:
        made = append(remote, *arguments)
        if next(answers):
            raise DeadlineExceeded("it may stay or vanish")
        return made

    with open_all(cluster.address) as store:
        monkeypatch.setattr(RemoteDatastore, "append_once", append_without_answer)
        store.append([1, 2], id="once", group="a")
        assert (store.get("once").documents, store.get("once").tokens) == (1, 2)
        with pytest.raises(NotFound, match="has no document with the id 'none'"):
            store.get("none")


def test_only_deadlines_that_passed_get_longer(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a deadline that doubled while all servers were away, calls of the next leader ended at once: it overflowed."""
    cluster.lead_first()
    append, deadlines = RemoteDatastore.append_once, []
    late, away = DeadlineExceeded("no answer"), Unavailable("nothing listens there")
    errors = iter([away, away, late, away, *[late] * 5])

    def append_late(remote: RemoteDatastore, *arguments: Any) -> Appended:
        deadlines.append(arguments[-1])
        if (error := next(errors, None)) is not None:
            raise error
        return append(remote, *arguments)

    with open_all(cluster.address) as store:
        monkeypatch.setattr(RemoteDatastore, "append_once", append_late)
        monkeypatch.setattr(appendable, "PAUSE_SECONDS", 0.0)
        assert store.append([1, 2], id="once", group="a").documents == 1
    assert deadlines == [1, 1, 1, 2, 2, 4, 8, 10, 10, 10]


def test_a_deletion_of_unknown_outcome_is_repeated(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.lead_first()
    delete, answers = RemoteDatastore.delete, iter([True, True, False])

    def delete_without_answer(remote: RemoteDatastore, *arguments: Any) -> LiveDeletion:
        made = delete(remote, *arguments)
        if next(answers):
            raise DeadlineExceeded("it may stay or vanish")
        return made

    with open_all(cluster.address) as store:
        store.append([1, 2], id="a", group="a")
        monkeypatch.setattr(RemoteDatastore, "delete", delete_without_answer)
        assert store.delete(group="a").documents == 0  # an earlier try removed them
        with pytest.raises(NotFound, match="group 'a' has no documents"):
            store.delete(group="a")


def test_a_leader_of_a_later_epoch_is_found_beside_a_server_that_hangs(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.lead_first()
    lead(cluster.stores[0][1])
    info, may_answer = RemoteDatastore.info, threading.Event()

    def answer(remote: RemoteDatastore, *arguments: Any) -> dict[str, Any]:
        assert remote.url != cluster.urls[0][0] or may_answer.wait(HANG)
        return info(remote, *arguments)

    with open_all(cluster.address) as store:
        monkeypatch.setattr(RemoteDatastore, "info", answer)
        leader = find_leader(store.servers.shards[0], last=1)
        assert (leader.epoch, leader.remote and leader.remote.url) == (2, cluster.urls[0][1])
        may_answer.set()


def test_copies_in_sync_are_asked_first() -> None:
    replicas = [ReplicaClient(ReplicaAddress(url=f"grpc://127.0.0.1:{port}/x"), HANG) for port in (1, 2)]
    shard = ReplicaSet(replicas, "")
    replicas[0].probed(0, in_sync=False)
    assert shard.choose() is replicas[0]
    replicas[1].probed(0)
    assert {shard.choose() for _ in range(20)} == {replicas[1]}
    assert shard.choose(tried=replicas[1:]) is replicas[0]
    for each in replicas:
        each.remote.close()


def test_a_copy_of_another_vocabulary_does_not_lead(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    url = cluster.urls[0][0]
    write_topology(Topology(shards=(Shard(replicas=(ReplicaAddress(url=url),)),)), file)
    with open_all(str(file)) as store, make_replica(tmp_path / "odd" / "chat", vocabulary=50) as odd:
        lead(odd)
        with serving({"chat": odd}) as server:
            copies = (ReplicaAddress(url=url), ReplicaAddress(url=f"grpc://{server.listening[0]}/chat"))
            write_topology(Topology(shards=(Shard(replicas=copies),)), file)
            store.servers.upkeep()
            with pytest.raises(Unavailable, match="no copy leads, so nothing is changed .*has another vocabulary"):
                store.append([1])


def test_few_groups_move_to_a_new_shard() -> None:
    groups = [f"group-{number}" for number in range(2000)]
    before = [shard_of("acme", group, 4) for group in groups]
    after = [shard_of("acme", group, 5) for group in groups]
    assert all(400 < count < 600 for count in Counter(before).values())
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {4}
    assert 300 < len(moved) < 500
    assert before != [shard_of("other", group, 4) for group in groups]
