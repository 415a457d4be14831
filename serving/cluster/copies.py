"""Chooses the nodes that have copies of live stores and of shards. The list of a live store's copies never shrinks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from typing import Any

from suffolk.build_index.on_ray.nodes import RayNode
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.cluster.config import ClusterConfig, StoresConfig
from suffolk.serving.cluster.node import LiveFiles, node_folder
from suffolk.serving.cluster.shards import ClusterShard, replica_words, require_register, shards_at, shards_of
from suffolk.serving.cluster.store_config import LiveConfig
from suffolk.serving.net.endpoint import Endpoint
from suffolk.serving.store.replication.servicer import MAX_FOLLOWERS

MAX_COPIES = 1 + MAX_FOLLOWERS
Placement = Mapping[str, Mapping[str, str]]
"""Key of a shard -> node -> HOST:PORT of its copy there. The copy on the first node may become the first leader."""


def with_copies(config: ClusterConfig, nodes: Sequence[RayNode], before: Mapping[str, str]) -> ClusterConfig:
    """``config`` with the addresses of the servers that have copies of live stores with one shard.

    Servers of absent nodes stay in the list, so that other servers find them when they return.

    Args:
        nodes: the nodes that are alive.
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
    for each in [*stores.whole_live.values()][:1]:  # all stores share these options
        yield f"--live-tokenizer={each.tokenizer}"
        yield f"--copies={each.copies}"
    yield from replica_words(stores, stores.copies_at, node)


def worker_options(config: ClusterConfig) -> Mapping[str, Any]:
    """The options of the workers. A live store named in ``remember`` is replaced by the address of its copies."""
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
    """For each shard of a live store: node -> HOST:PORT of its copy there."""
    return [stores.copies_at] if name in stores.whole_live else shards_at(stores, name)


def with_shards(config: ClusterConfig, nodes: Mapping[RayNode, LiveFiles], before: Placement) -> ClusterConfig:
    """``config`` with the addresses of all copies of shards.

    A shard of a live store keeps all its copies, and nodes with its files get a copy too. A published shard keeps its copies on
    nodes that are alive. Then the nodes with the fewest copies get one, until a shard has ``copies`` + ``spare``.

    Args:
        nodes: the nodes that are alive, and the live stores whose files they have.
        before: ``shards_at`` of the running cluster.

    Raises:
        InvalidArgument: too few nodes or too many copies; a changed number of shards; or no node with the text of a
            shard.
    """
    _require_same_shards(config.stores.live, nodes)
    shards = [*shards_of(config.stores)]
    ordered = sorted(nodes, key=lambda each: each.name)
    alive = [node.name for node in ordered]
    placed: dict[str, dict[str, str]] = {
        each.key: {node: at for node, at in before.get(each.key, {}).items() if each.live or node in alive}
        for each in shards
    }
    for shard in shards:
        if shard.live and not placed[shard.key]:
            _require_files(shard, nodes)
        _add(shard, [node for node in ordered if shard.key in nodes[node].found], placed, config.stores.port)
    for shard in shards:
        _add(shard, ordered, placed, config.stores.port, shard.copies + shard.spare)
        _require_copies(shard, placed[shard.key])
        if shard.live:
            require_register(config.stores, len(placed[shard.key]))
    return replace(config, stores=replace(config.stores, shards_at=placed))


def _add(
    shard: ClusterShard, nodes: Sequence[RayNode], placed: dict[str, dict[str, str]], port: int, most: float = math.inf
) -> None:
    """Add copies of ``shard`` until there are ``most``. The nodes with the fewest copies come first."""
    found = placed[shard.key]
    free = [node for node in nodes if node.name not in found]
    while free and len(found) < most:
        node = min(free, key=lambda each: (*_load(each, placed), each.name))
        free.remove(node)
        found[node.name] = _free_address(node, port, placed)


def _require_copies(shard: ClusterShard, found: Collection[str]) -> None:
    """Raises InvalidArgument: a live store has too few nodes for a shard, or a shard has too many copies."""
    if shard.live and len(found) < max(shard.copies, 2):
        raise InvalidArgument(
            f"live store {shard.store}: shard {shard.label} needs {max(shard.copies, 2)} nodes, and has {', '.join(found)}; add "
            "nodes, or lower copies or shards"
        )
    if len(found) > MAX_COPIES:
        raise InvalidArgument(
            f"datastore {shard.store}: shard {shard.label} has {len(found)} copies ({', '.join(found)}); at most {MAX_COPIES} are "
            "possible: lower copies or spare, or remove its folder on some nodes",
        )


def _load(node: RayNode, placed: Placement) -> tuple[int, int]:
    """Number of copies on a node, and how many of them may become the first leader of their shard."""
    firsts = sum(next(iter(found), "") == node.name for found in placed.values())
    return sum(node.name in found for found in placed.values()), firsts


def _free_address(node: RayNode, port: int, placed: Placement) -> str:
    """The first free address on a node. Its store server has ``port`` and the next one."""
    taken = {*chain.from_iterable(found.values() for found in placed.values())}
    addresses = (str(Endpoint(node.host, port + 2 * each)) for each in count(1))
    return next(address for address in addresses if address not in taken)


def _require_same_shards(live: Mapping[str, LiveConfig], nodes: Mapping[RayNode, LiveFiles]) -> None:
    """Raises InvalidArgument: a node has documents of a live store in another number of shards."""
    for node, files in nodes.items():
        for key in files.with_documents:
            store, _, label = key.partition("@")
            total = int(label.partition("-of-")[2] or 1)
            if total != live[store].shards:
                raise InvalidArgument(
                    f"shards of live store {store} is {live[store].shards}, and node {node.name} has documents of {total} in "
                    f"live/{key}; a live store keeps its shards: give the new one another name"
                )


def _require_files(shard: ClusterShard, nodes: Mapping[RayNode, LiveFiles]) -> None:
    """Raises InvalidArgument: nodes have documents of the store, and none has files of ``shard``."""
    if any(shard.key in files.found for files in nodes.values()):
        return
    for node, files in nodes.items():
        if any(key.partition("@")[0] == shard.store for key in files.with_documents):
            raise InvalidArgument(
                f"live store {shard.store}: no node has files of shard {shard.label}, and {node.name} has documents of another "
                f"one; add the nodes that have live/{shard.key}"
            )
