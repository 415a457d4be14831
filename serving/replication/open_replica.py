"""Opens a replica that takes its part among its peers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from suffolk.serving.live_store.identity import create_identity, is_free
from suffolk.serving.live_store.settings import LiveSettings
from suffolk.serving.replication.follower import Follower
from suffolk.serving.replication.peer import Peer
from suffolk.serving.replication.register import Register
from suffolk.serving.replication.replica import ReplicaSettings, ReplicaStore


def open_replica(
    path: Path,
    settings: LiveSettings,
    register: Register,
    replicas: ReplicaSettings,
    peers: Sequence[Peer],
    tokenizer: str | None = None,
) -> ReplicaStore:
    """The replica in the folder ``path``, which is made if it does not exist. Its ``close`` closes ``peers``.

    Args:
        peers: the other servers that have a copy.
        tokenizer: of a new store.

    Raises:
        Those of ``create_live_store`` and ``ReplicaStore``.
    """
    if is_free(path):
        create_identity(path, tokenizer, None, 64)
    store = ReplicaStore(path, settings, register, replicas)
    store.before_close(Follower(store, peers).close)
    return store
