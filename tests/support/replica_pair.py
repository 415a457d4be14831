"""Replicas in this process, without a network: one leads, the other follows while a test says so."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path

from suffolk.datastore.errors import Unavailable
from suffolk.serving.store.live_store.settings import LiveSettings
from suffolk.serving.store.live_store.store import create_live_store
from suffolk.serving.store.replication.messages import records_of
from suffolk.serving.store.replication.register import StoredRegister
from suffolk.serving.store.replication.replicated_store import ReplicaSettings, ReplicatedStore

VOCABULARY = 40
PLAIN = LiveSettings(threads=1)


def register_at(folder: Path) -> StoredRegister:
    """The register of copies in this folder."""
    return StoredRegister(f"file://{folder}/register")


def make_replica(
    path: Path,
    settings: LiveSettings = PLAIN,
    copies: int = 1,
    vocabulary: int = VOCABULARY,
    register: StoredRegister | None = None,
    max_lag: float | None = None,
) -> ReplicatedStore:
    """A replica in a new folder, or in the folder that is there. ``register``: default: that beside it."""
    if not path.exists():
        create_live_store(path, vocab_size=vocabulary).close()
    return ReplicatedStore(path, settings, register or register_at(path.parent), ReplicaSettings(copies, max_lag))


def lead(store: ReplicatedStore) -> None:
    """Let ``store`` lead, whatever others have."""
    store.member.lead(accept_loss=True)


class Following:
    """``follower`` gets the changes of ``leader`` when ``receive`` is called, until ``close``."""

    def __init__(self, leader: ReplicatedStore, follower: ReplicatedStore) -> None:
        self.leader, self.follower = leader, follower
        self._stack = ExitStack()
        follower.member.read(0)  # it knows who leads
        self._epoch = leader.status().epoch
        hello = follower.member.hello(self._epoch)
        welcome = self._stack.enter_context(leader.member.followed(hello))
        follower.adopt(leader.identity)
        follower.member.begin_following(welcome.epoch, welcome.refill, "here")
        self._subscription = welcome.subscription
        for record in welcome.missing:
            self._repeat(record, None)
        self.receive()

    def receive(self) -> None:
        """Repeat the leader's changes until now."""
        batch = self.leader.feed.take(self._subscription, 0)
        assert self._repeat(batch.records, (batch.position, batch.digest)) == batch.position
        self.leader.feed.confirm(self._subscription, batch.position)

    def close(self) -> None:
        self._stack.close()
        self.follower.member.end_following()

    def _repeat(self, records: bytes, ahead: tuple[int, int] | None) -> int:
        return self.follower.member.repeat(records_of(records), self._epoch, ahead, self.leader.writer.clock.now())


def follow(leader: ReplicatedStore, follower: ReplicatedStore) -> Following:
    """As ``Following``. A follower with other documents leaves first, and is filled again."""
    with suppress(Unavailable):
        return Following(leader, follower)
    return Following(leader, follower)


def contents(store: ReplicatedStore) -> list[tuple[str | None, list[int]]]:
    """Id and tokens of each document, in order."""
    return [(each.source, each.tokens.tolist()) for each in store.documents()]
