"""What the copies of a store are, and whether one leads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.replication.messages import ReplicaStatus
from suffolk.serving.replication.peer import Peer

_AT_A_TIME = 16
"""Copies that are asked at the same time, because one that is away takes up to a second."""
Found = Mapping[str, ReplicaStatus | SuffolkError]


def read_replicas(urls: Sequence[str]) -> Found:
    """By URL, what each copy of a store is and has, or why it did not answer. Raises InvalidArgument: a URL is malformed."""
    with ThreadPoolExecutor(_AT_A_TIME, "suffolk-copies") as pool:
        return dict(zip(urls, pool.map(_read, map(Peer, urls)), strict=True))


def lead(url: str, accept_loss: bool) -> str:
    """Let the copy at ``url`` lead. Returns what may be lost. Raises as ``Member.lead``, and InvalidArgument for the URL."""
    with closing(Peer(url)) as peer:
        return peer.lead(accept_loss)


def has_leader(found: Iterable[ReplicaStatus | SuffolkError]) -> bool:
    """Whether one copy leads, in the last epoch of all that answer."""
    known = [each for each in found if isinstance(each, ReplicaStatus)]
    last = max((each.epoch for each in known), default=0)
    return sum(each.leads and each.epoch == last for each in known) == 1


def have_leaders(shards: Sequence[tuple[str, ...]]) -> bool:
    """Whether each shard, given by the URLs of its copies, has a leader now."""
    with ThreadPoolExecutor(_AT_A_TIME, "suffolk-shards") as pool:
        return all(pool.map(lambda urls: has_leader(read_replicas(urls).values()), shards))


def _read(peer: Peer) -> ReplicaStatus | SuffolkError:
    with closing(peer):
        try:
            return peer.status()
        except SuffolkError as error:
            return error
