"""The servers that a cluster shall run, and the command line of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from suffolk.build_index.on_ray.nodes import RayNode
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.version import __version__
from suffolk.serving.clients.fanout.topology import MAX_REPLICAS
from suffolk.serving.cluster.config import ClusterConfig, StoresConfig, option_words
from suffolk.serving.cluster.copies import live_words, worker_options
from suffolk.serving.cluster.published_topology import topology_files
from suffolk.serving.cluster.shards import shard_words, shards_of
from suffolk.serving.net.endpoint import Endpoint, parse_endpoint

DRAIN_SECONDS = 2.0
"""Seconds for which a stopping server still answers new requests. The front and clients notice the stop within this
time."""


@dataclass(frozen=True)
class ServerSpec:
    """One server that shall run. A server whose spec differs from the wanted one is replaced.

    Attributes:
        name: store-NODE, worker-NUMBER, or STORE@NUMBER-NODE of a shard of a datastore.
        node: id of the node that it must run on; empty if Ray chooses.
        port: gRPC port; 0 for a free one. HTTP has the next port, or a free one.
        words: the words of the command that do not depend on the node.
        folder: folder of the cluster on every node.
        topologies: names of the topology files there that a worker searches.
        shard: which shard of its datastore a store serves, such as 0-of-2; empty for the node's store server.
        version: version of Suffolk. An update of the installed version replaces all servers.
        cpus, gpus: what Ray reserves.
        grace, start_seconds: as in ``ClusterConfig``.
    """

    name: str
    kind: Literal["store", "worker"]
    words: tuple[str, ...]
    port: int
    folder: str
    grace: float
    start_seconds: float
    version: str = __version__
    node: str = ""
    cpus: float = 0
    gpus: float = 0
    topologies: tuple[str, ...] = ()
    shard: str = ""

    def command(self, node: RayNode, folder: Path) -> list[str]:
        """The words after ``suffolk`` on ``node``. ``folder``: the node's part of the cluster's folder."""
        addresses = ["--listen", str(Endpoint(node.host, self.port))]
        addresses += ["--http", str(Endpoint(node.host, self.port and self.port + 1))]
        stopping = [f"--set=grace={self.grace:g}", f"--set=drain={DRAIN_SECONDS:g}"]
        if self.kind == "store":
            copies = folder / "copies" / (self.name if self.shard else "")  # shards share the datastore's name
            return [*self.words, *addresses, *stopping, "--cache", str(copies)]
        files = [folder / name for name in self.topologies]
        searched = [f"--datastore={file}?zone={node.name}" for file in files if file.exists()]
        return [*self.words, *addresses, *stopping, *searched]


def wanted_servers(config: ClusterConfig, nodes: Sequence[RayNode]) -> dict[str, ServerSpec]:
    """Name -> spec of all servers of ``config``, stores first. ``nodes``: the nodes that are alive.

    Nodes that joined after ``check_stores`` get no store once there are MAX_REPLICAS stores, because a topology file lists no
    more.
    """
    return {spec.name: spec for spec in [*_stores(config, nodes), *_shards(config, nodes), *_workers(config)]}


def check_stores(stores: StoresConfig, nodes: Sequence[RayNode]) -> None:
    """Raises InvalidArgument: a store on every node would be more than MAX_REPLICAS."""
    if stores.names and not stores.count and len(nodes) > MAX_REPLICAS:
        raise InvalidArgument(
            f"count of stores is 0, one on each of {len(nodes)} nodes; it may be at most {MAX_REPLICAS}: set count, other "
            "nodes ask the stores that run"
        )


def _stores(config: ClusterConfig, nodes: Sequence[RayNode]) -> Iterator[ServerSpec]:
    stores = config.stores
    if not stores.names:
        return
    folders = [f"{name}={place}" for name, place in stores.whole.items()]
    words = ("serve", *folders, *option_words(stores.options))
    possible = [node for node in nodes if node.name in stores.copies_at or not stores.whole_live]
    for node in sorted(possible, key=lambda each: each.name)[: stores.count or MAX_REPLICAS]:
        live = live_words(config, node)
        yield ServerSpec(f"store-{node.name}", "store", (*words, *live), stores.port, *_shared(config), node=node.id)


def _shards(config: ClusterConfig, nodes: Sequence[RayNode]) -> Iterator[ServerSpec]:
    """The servers of datastores with several shards, on the nodes that are alive."""
    alive = {node.name: node for node in nodes}
    for shard in shards_of(config.stores):
        for name, address in config.stores.shards_at[shard.key].items():
            if (node := alive.get(name)) is not None:
                words = ("serve", *option_words(config.stores.options), *shard_words(config, shard, node))
                port = parse_endpoint(address, "shards_at").port
                yield ServerSpec(
                    shard.server(name), "store", words, port, *_shared(config), node=node.id, shard=shard.label
                )


def _workers(config: ClusterConfig) -> Iterator[ServerSpec]:
    workers = config.workers
    words = ("worker", "--model", workers.model, *option_words(worker_options(config)))
    for number in range(workers.count):
        port = workers.port and workers.port + 2 * number
        yield ServerSpec(
            f"worker-{number}",
            "worker",
            words,
            port,
            *_shared(config),
            cpus=workers.cpus,
            gpus=workers.gpus,
            topologies=topology_files(config.stores),
        )


def _shared(config: ClusterConfig) -> tuple[str, float, float]:
    """The folder, grace and start_seconds of all specs."""
    return config.folder, config.grace, config.start_seconds
