"""The shards of datastores. Each shard has its own servers, one on each node with a copy. The options of each server name the
other servers of the shard."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from suffolk.build_index.on_ray.nodes import RayNode
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.cluster.config import ClusterConfig, StoresConfig
from suffolk.serving.cluster.node import node_folder
from suffolk.serving.cluster.store_config import LiveConfig, sources_of


@dataclass(frozen=True)
class ClusterShard:
    """One of the ``total`` shards of the datastore ``store``.

    Attributes:
        source: folder or URL of the text of a published shard; empty for a shard of a live store, whose settings are in
            ``live``.
        copies, spare: servers that the shard needs, and further servers that it gets if there are enough nodes.
    """

    store: str
    number: int
    total: int
    copies: int
    spare: int
    source: str = ""
    live: LiveConfig | None = None

    @property
    def label(self) -> str:
        """Its number among all shards of its store, such as 0-of-2."""
        return f"{self.number}-of-{self.total}"

    @property
    def key(self) -> str:
        """The name of the shard in ``shards_at``, and of its folder. It contains the number of shards, which live
        stores never change."""
        return f"{self.store}@{self.label}"

    def server(self, node: str) -> str:
        """The name of its server on a node."""
        return f"{self.store.replace('/', '@')}@{self.number}-{node}"


def shards_of(stores: StoresConfig) -> Iterator[ClusterShard]:
    """All shards of the datastores that have several shards."""
    for name in stores.sharded:
        if (live := stores.live.get(name)) is not None:
            for number in range(live.shards):
                yield ClusterShard(name, number, live.shards, live.copies, live.spare, live=live)
        else:
            sources = sources_of(stores.datastores[name])
            for number, source in enumerate(sources):
                yield ClusterShard(name, number, len(sources), 1, stores.copies - 1, source=source)


def shards_at(stores: StoresConfig, name: str) -> list[Mapping[str, str]]:
    """For each shard of a datastore with several shards: node -> HOST:PORT of its copy there."""
    return [stores.shards_at[shard.key] for shard in shards_of(stores) if shard.store == name]


def shard_words(config: ClusterConfig, shard: ClusterShard, node: RayNode) -> Iterator[str]:
    """The options of ``suffolk serve`` for the copy of a shard on ``node``."""
    if shard.live is None:
        yield f"{shard.store}={shard.source}"
        return
    stores = config.stores
    yield f"--live={shard.store}={node_folder(config.folder, node) / 'live' / shard.key}"
    yield f"--live-tokenizer={shard.live.tokenizer}"
    yield f"--copies={shard.live.copies}"
    yield from replica_words(stores, stores.shards_at[shard.key], node, shard.key)


def require_register(stores: StoresConfig, copies: int) -> None:
    """Raises InvalidArgument: live stores have several copies, and there is no place for a register."""
    if copies > 1 and not stores.register_url:
        raise InvalidArgument(
            f"register of stores is missing, and live stores have {copies} copies; give the URL of a folder in storage, such as "
            "s3://BUCKET/register, or of etcd"
        )


def replica_words(stores: StoresConfig, copies: Mapping[str, str], node: RayNode, shard: str = "") -> Iterator[str]:
    """The options of the server on ``node``; none for a single server. ``copies``: node -> HOST:PORT of all servers
    with copies.

    ``shard``: the key of the shard of the store, if it has several.
    """
    if len(copies) > 1:
        yield f"--register={stores.register_url.rstrip('/')}{shard and '/'}{shard}"
        yield from (f"--peer={stores.url(address)}" for other, address in copies.items() if other != node.name)
