"""The shards of live stores: each has servers of its own, one on each node with a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from suffolk.build_index.on_ray.nodes import Node
from suffolk.serving.cluster.config import ClusterConfig, StoresConfig
from suffolk.serving.cluster.live_config import LiveConfig
from suffolk.serving.cluster.node import node_folder


@dataclass(frozen=True)
class LiveShard:
    """One of the ``total`` shards of the live store ``store``."""

    store: str
    number: int
    live: LiveConfig

    @property
    def label(self) -> str:
        """Its number among all of its store, such as 0-of-2."""
        return f"{self.number}-of-{self.live.shards}"

    @property
    def key(self) -> str:
        """Its name in ``shards_at``, and that of its folder. The total is in it, because it never changes."""
        return f"{self.store}@{self.label}"

    def server(self, node: str) -> str:
        """The name of its server on a node."""
        return f"{self.store.replace('/', '@')}@{self.number}-{node}"


def shards_of(stores: StoresConfig) -> Iterator[LiveShard]:
    """All shards of those live stores that have several."""
    for name, live in stores.sharded.items():
        yield from (LiveShard(name, number, live) for number in range(live.shards))


def shards_at(stores: StoresConfig, name: str) -> list[Mapping[str, str]]:
    """Of each shard of a live store that has several: node -> HOST:PORT of its copy there."""
    return [stores.shards_at[shard.key] for shard in shards_of(stores) if shard.store == name]


def shard_words(config: ClusterConfig, shard: LiveShard, node: Node) -> Iterator[str]:
    """The options of ``suffolk serve`` for the copy of a shard on ``node``."""
    stores = config.stores
    yield f"--live={shard.store}={node_folder(config.folder, node) / 'live' / shard.key}"
    yield f"--live-tokenizer={shard.live.tokenizer}"
    yield f"--copies={shard.live.copies}"
    others = {name: address for name, address in stores.shards_at[shard.key].items() if name != node.name}
    yield from (f"--peer={stores.url(address)}" for address in others.values())
