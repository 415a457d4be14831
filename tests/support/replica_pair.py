"""Replicas in this process, without a network: one leads, the other follows while a test says so."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from suffolk.serving.live_store.record import decode
from suffolk.serving.live_store.settings import LiveSettings
from suffolk.serving.live_store.store import create_live_store
from suffolk.serving.replication.replica import ReplicaStore

VOCABULARY = 40
PLAIN = LiveSettings(threads=1)


def make_replica(
    path: Path, settings: LiveSettings = PLAIN, copies: int = 1, vocabulary: int = VOCABULARY
) -> ReplicaStore:
    """A replica in a new folder, or in the folder that is there."""
    if not path.exists():
        create_live_store(path, vocab_size=vocabulary).close()
    return ReplicaStore(path, settings, copies)


class Following:
    """``follower`` gets the changes of ``leader`` when ``receive`` is called, until ``close``."""

    def __init__(self, leader: ReplicaStore, follower: ReplicaStore) -> None:
        self.leader, self.follower = leader, follower
        self._stack = ExitStack()
        self._epoch = leader.state.epoch
        follower.begin_following(self._epoch, leader.identity, "here")
        self._subscription, missing = self._stack.enter_context(
            leader.followed("there", follower.state.epoch, *follower.held())
        )
        for record in missing:
            self._repeat(record, False)
        self.receive()

    def receive(self) -> None:
        """Repeat the leader's changes until now."""
        records, position = self.leader.feed.take(self._subscription, 0)
        assert self._repeat(records, True) == position
        self.leader.feed.confirm(self._subscription, position)

    def close(self) -> None:
        self._stack.close()

    def _repeat(self, records: bytes, complete: bool) -> int:
        data, changes = memoryview(records), []
        while data:
            found = decode(data)
            assert found is not None
            changes.append(found[0])
            data = data[found[1] :]
        return self.follower.repeat(changes, self._epoch, complete)


def contents(store: ReplicaStore) -> list[tuple[str | None, list[int]]]:
    """Id and tokens of each document, in order."""
    return [(each.source, each.tokens.tolist()) for each in store.documents()]
