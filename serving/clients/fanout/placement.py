"""Which shard of a live datastore holds a group."""

from __future__ import annotations

from hashlib import blake2b


def shard_of(tenant: str, group: str, shards: int) -> int:
    """The shard of ``group``, 0 to ``shards - 1``, by rendezvous hashing (Thaler and Ravishankar 1998).

    With one shard more, one group in ``shards + 1`` gets another shard: the new one.
    """
    return max(range(shards), key=lambda shard: _weight(f"{tenant}\0{group}\0{shard}"))


def _weight(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
