"""A follower changes from one leader to another."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from suffolk.serving.store.replication import follower
from suffolk.serving.store.replication.messages import Hello
from suffolk.serving.store.replication.peer import Peer
from tests.support.draft_server import serving
from tests.support.replica_pair import lead, make_replica, register_at
from tests.support.waiting import HANG, until


def test_another_leader_while_the_documents_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "TICK_SECONDS", 0.01)
    register = register_at(tmp_path)
    first, second, third = (make_replica(tmp_path / name / "chat", register=register) for name in "abc")
    say_hello, listing, may_go_on = third.member.hello, threading.Event(), threading.Event()

    def hello_slowly(epoch: int) -> Hello:
        listing.set()
        assert may_go_on.wait(HANG)
        return say_hello(epoch)

    monkeypatch.setattr(third.member, "hello", hello_slowly)
    with first, second, third, serving({"chat": first}) as a, serving({"chat": second}) as b:
        lead(first)
        following = follower.Follower(third, [Peer(f"grpc://{each.listening[0]}", "chat") for each in (a, b)])
        third.before_close(following.close)
        assert listing.wait(HANG)
        lead(second)
        may_go_on.set()
        until(lambda: second.feed.followers() == 1)
        assert third.status().epoch == 2


def test_a_copy_that_hangs_is_waited_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "ASK_SECONDS", 0.0)
    monkeypatch.setattr(follower.Follower, "_decide", lambda _: None)
    with make_replica(tmp_path / "chat") as store, serving({"chat": store}) as server:
        peers = [Peer(f"grpc://{server.listening[0]}", "chat") for _ in "ab"]
        status, may_answer = peers[0].status, threading.Event()
        monkeypatch.setattr(peers[0], "status", lambda: may_answer.wait(HANG) and status())
        following = follower.Follower(store, peers)
        until(lambda: bool(following._ask()))
        monkeypatch.setattr(follower, "ASK_SECONDS", HANG)
        assert following._ask()  # it waits for the other one alone
        assert following._by_id == {store.status().id: peers[1]}
        may_answer.set()
        following.close()
