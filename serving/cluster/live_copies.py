"""Which store servers of a cluster have copies of its live stores. The list never shrinks while the cluster runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from suffolk.build_index.on_ray.nodes import RayNode
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.cluster.config import ClusterConfig, StoresConfig
from suffolk.serving.cluster.node import node_folder
from suffolk.serving.cluster.shards import replica_words, require_register, shards_at
from suffolk.serving.net.endpoint import Endpoint
from suffolk.serving.store.replication.servicer import MAX_FOLLOWERS

MAX_COPIES = 1 + MAX_FOLLOWERS


def with_copies(config: ClusterConfig, nodes: Sequence[RayNode], before: Mapping[str, str]) -> ClusterConfig:
    """``config`` with the addresses of the servers that have copies; as it is without live stores.

    Servers of nodes that are away stay in the list, so that the others find them when they are back.

    Args:
        nodes: those that are alive.
        before: ``copies_at`` of the running cluster.

    Raises:
        InvalidArgument: too few or too many servers, or fewer than before.
    """
    stores = config.stores
    if not stores.whole_live:
        return replace(config, stores=replace(stores, copies_at={}))
    found = dict(before)
    for node in sorted(nodes, key=lambda each: each.name):
        if node.name in found or len(found) < (stores.count or len(nodes) + len(before)):
            found[node.name] = str(Endpoint(node.host, stores.port))
    require_register(stores, len(found))
    name, copies = next((name, each.copies) for name, each in stores.whole_live.items())
    listed = ", ".join(found)
    if copies > len(found):
        raise InvalidArgument(
            f"copies of live store {name} is {copies}, more than store servers ({listed}); lower it, or add nodes"
        )
    if len(found) > MAX_COPIES:
        raise InvalidArgument(
            f"count of stores is {stores.count}, and {len(found)} servers would have copies of live stores; at most {MAX_COPIES} "
            "can: set count"
        )
    if stores.count and len(found) > stores.count:
        raise InvalidArgument(
            f"count of stores is {stores.count}, and {len(found)} servers have copies of live stores ({listed}), which a running "
            "cluster keeps; stop it first"
        )
    if len(before) == 1 < len(found):
        raise InvalidArgument(
            f"live store {name} has no copies, because the cluster was started with one store server; stop the cluster first"
        )
    return replace(config, stores=replace(stores, copies_at=found))


def live_words(config: ClusterConfig, node: RayNode) -> Iterator[str]:
    """The options of ``suffolk serve`` on ``node`` for the live stores."""
    stores = config.stores
    for name in stores.whole_live:
        yield f"--live={name}={node_folder(config.folder, node) / 'live' / name}"
    for each in [*stores.whole_live.values()][:1]:  # all have the same
        yield f"--live-tokenizer={each.tokenizer}"
        yield f"--copies={each.copies}"
    yield from replica_words(stores, stores.copies_at, node)


def worker_options(config: ClusterConfig) -> Mapping[str, Any]:
    """The options of the workers; a live store in ``remember`` becomes the address of its copies."""
    stores, options = config.stores, config.workers.options
    if (name := str(options.get("remember"))) not in stores.live:
        return options
    shards = [",".join(copies.values()) for copies in _shards_of(stores, name)]
    return {**options, "remember": stores.url("+".join(shards), name)}


def copies_of(stores: StoresConfig) -> list[tuple[str, ...]]:
    """The URLs of the copies of each shard of each live store. A store on a single server has no leader, and is left out."""
    return [
        tuple(stores.url(address, name) for address in copies.values())
        for name in stores.live
        for copies in _shards_of(stores, name)
        if len(copies) > 1
    ]


def _shards_of(stores: StoresConfig, name: str) -> list[Mapping[str, str]]:
    """Of each shard of a live store: node -> HOST:PORT of its copy there."""
    return [stores.copies_at] if name in stores.whole_live else shards_at(stores, name)
