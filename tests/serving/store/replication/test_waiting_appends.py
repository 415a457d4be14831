"""Appends that wait for a copy take no place from queries."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.clients.remote_datastore import connect
from suffolk.serving.store.replication.follower import Follower
from suffolk.serving.store.replication.peer import Peer
from suffolk.serving.store.replication.replicated_store import ReplicatedStore
from tests.support.draft_server import serving
from tests.support.replica_pair import make_replica, register_at
from tests.support.waiting import HANG, until

CALLS = 2


def test_queries_go_on_while_a_copy_hangs(tmp_path: Path) -> None:
    register = register_at(tmp_path)
    first, second = (make_replica(tmp_path / name / "chat", copies=2, register=register) for name in "ab")
    with first, second, serving({"chat": first}, max_concurrent=CALLS) as server:
        url = f"grpc://{server.listening[0]}/chat"
        first.before_close(Follower(first, []).close)
        until(lambda: first.status().leads)
        second.before_close(Follower(second, [Peer(url)]).close)
        until(lambda: second.status().in_sync)
        client = connect(url, HANG)
        client.append([1, 2])
        with second.member._role:  # it repeats nothing
            appends = [threading.Thread(target=_try_to_append, args=(url, number)) for number in range(CALLS)]
            for each in appends:
                each.start()
            until(lambda: _documents(first) == 1 + CALLS)
            until(lambda: server.service.admission.in_flight() == 0)
            assert not server.service.admission.has_ended()
            assert client.lookup([1, 2]).count == 1
        for each in appends:
            each.join()


def _documents(store: ReplicatedStore) -> int:
    return store.stats().documents


def _try_to_append(url: str, number: int) -> None:
    with suppress(SuffolkError):  # it may wait for too long
        connect(url, HANG).append([3, number])
