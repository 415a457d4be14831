"""A replica: what it refuses, and what its disk and its clock do to it."""

from __future__ import annotations

import subprocess
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from suffolk.datastore.errors import (
    InvalidArgument,
    PermissionDenied,
    SuffolkError,
    Unavailable,
    Unsupported,
)
from suffolk.serving.net.access_file import add_token
from suffolk.serving.net.identity import Role
from suffolk.serving.store.live_store.store import create_live_store, open_live_store
from suffolk.serving.store.replication import feed, messages
from suffolk.serving.store.replication.follower import Follower, open_replica
from suffolk.serving.store.replication.messages import ReplicaStatus
from suffolk.serving.store.replication.peer import Peer, read_replicas
from suffolk.serving.store.replication.replicated_store import ReplicaSettings, ReplicatedStore
from tests.support.draft_server import serving
from tests.support.replica_pair import PLAIN, Following, contents, lead, make_replica, register_at
from tests.support.waiting import until


def test_a_copy_with_a_wrong_clock_removes_nothing_too_early(tmp_path: Path) -> None:
    settings = replace(PLAIN, ttl_seconds=60)
    with make_replica(tmp_path / "x", settings) as leader, make_replica(tmp_path / "y", settings) as follower:
        lead(leader)
        leader.append([1])
        follower.writer.clock.set(leader.writer.clock.now() + 7200)
        Following(leader, follower).close()
        lead(follower)
        follower.maintenance.work()
        assert contents(follower) == contents(leader) == [(None, [1])]


def test_a_copy_is_not_opened_by_itself(tmp_path: Path, pair: tuple[ReplicatedStore, ReplicatedStore]) -> None:
    pair[0].close()
    with pytest.raises(
        InvalidArgument, match="is a copy of a store on other servers; serve it with --register, or remove"
    ):
        open_live_store(tmp_path / "x")
    with pytest.raises(Unsupported, match="has copies on other servers, and published files would have none"):
        pair[1].flush()
    with create_live_store(tmp_path / "flushed", vocab_size=40) as flushed:
        flushed.append([1])
        flushed.flush()
    with pytest.raises(
        Unsupported, match="has published files, which have no copies elsewhere; serve it without --register"
    ):
        make_replica(tmp_path / "flushed")


def test_a_copy_that_is_cut_off_refuses_queries(pair: tuple[ReplicatedStore, ReplicatedStore]) -> None:
    leader, follower = pair
    leader.append([1, 2], id="a")
    following = Following(leader, follower)
    leader.member.tick(dict)
    follower.member.read(0)
    follower.member.max_lag = 5.0
    assert follower.lookup([1]).count == 1
    follower.member._sure_at -= 6
    for ask in (lambda: follower.lookup([1]), lambda: follower.occurrences([1]), lambda: follower.get("a")):
        with pytest.raises(Unavailable, match="not known to be in sync for 6.0 s, and max_lag is 5 s; ask another one"):
            ask()
    follower.member.max_lag = None
    assert follower.lookup([1]).count == 1
    following.close()


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


def test_half_a_list_of_documents_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        monkeypatch.setattr(messages, "MAX_HELD_BYTES", 32)
        first.more = True
        with pytest.raises(InvalidArgument, match="held has more than 32 bytes; it has 16 for each document"):
            list(peer.follow([first, first], lambda cancel: None))
        peer.close()


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
                until(lambda: copy.status().in_sync)
                _fill(leader)
                until(lambda: "No space left on device" in copy.problem)
                filler.unlink()
                until(lambda: leader.feed.followers() == 1)
                leader.append([7, 7])
                assert contents(copy) == contents(leader)
                assert copy.problem == ""
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)


def _fill(leader: ReplicatedStore) -> None:
    """Append until the follower's disk is full."""
    while leader.feed.followers():
        with suppress(SuffolkError):
            leader.append(np.full(4000, 3))
