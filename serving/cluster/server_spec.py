"""Which servers a cluster shall run, and the command line of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from suffolk.build_index.on_ray.nodes import Node
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.version import __version__
from suffolk.serving.cluster.config import ClusterConfig, StoresConfig
from suffolk.serving.cluster.live_copies import live_words, worker_options
from suffolk.serving.fanout.topology import MAX_REPLICAS
from suffolk.serving.transport.endpoint import Endpoint

DRAIN_SECONDS = 2.0
"""Seconds for which a stopping server still answers new requests: longer than the front and clients need to notice."""


@dataclass(frozen=True)
class ServerSpec:
    """One server that shall run. A server whose spec differs from the wanted one is replaced.

    Attributes:
        name: store-NODE or worker-NUMBER.
        node: id of the node that it must run on; empty if Ray chooses.
        port: gRPC port; 0 for a free one. HTTP has the next port, or a free one.
        words: the command, without what depends on the node.
        folder: folder of the cluster on every node.
        version: of Suffolk. An update of the installed version replaces all servers.
        cpus, gpus: what Ray reserves.
        grace, start_seconds: as in ``ClusterConfig``.
    """

    name: str
    kind: Literal["store", "worker"]
    node: str
    port: int
    words: tuple[str, ...]
    folder: str
    version: str
    cpus: float
    gpus: float
    grace: float
    start_seconds: float

    def command(self, node: Node, folder: Path, topology: Path) -> list[str]:
        """The words after ``suffolk`` on ``node``. ``folder``: its part of the cluster's folder; ``topology``: a file there."""
        addresses = ["--listen", str(Endpoint(node.host, self.port))]
        addresses += ["--http", str(Endpoint(node.host, self.port and self.port + 1))]
        stopping = [f"--set=grace={self.grace:g}", f"--set=drain={DRAIN_SECONDS:g}"]
        if self.kind == "store":
            return [*self.words, *addresses, *stopping, "--cache", str(folder / "copies")]
        searched = ["--datastore", f"{topology}?zone={node.name}"] if topology.exists() else []
        return [*self.words, *addresses, *stopping, *searched]


def wanted_servers(config: ClusterConfig, nodes: Sequence[Node]) -> dict[str, ServerSpec]:
    """Name -> spec of all servers of ``config``, stores first. ``nodes``: those that are alive.

    Nodes that joined after ``check_stores`` get no store above MAX_REPLICAS: the list of stores could not hold it.
    """
    return {spec.name: spec for spec in [*_stores(config, nodes), *_workers(config)]}


def check_stores(stores: StoresConfig, nodes: Sequence[Node]) -> None:
    """Raises InvalidArgument: a store on every node would be more than MAX_REPLICAS."""
    if not stores.count and len(nodes) > MAX_REPLICAS:
        raise InvalidArgument(
            f"count of stores is 0, one on each of {len(nodes)} nodes; it may be at most {MAX_REPLICAS}: set count, other "
            "nodes ask the stores that run"
        )


def _stores(config: ClusterConfig, nodes: Sequence[Node]) -> Iterator[ServerSpec]:
    stores = config.stores
    folders = [f"{name}={place}" for name, place in stores.datastores.items()]
    words = ("serve", *folders, *_option_words(stores.options))
    possible = [node for node in nodes if node.name in stores.copies_at or not stores.live]
    for node in sorted(possible, key=lambda each: each.name)[: stores.count or MAX_REPLICAS]:
        live = live_words(config, node)
        yield _spec(config, f"store-{node.name}", "store", (*words, *live), stores.port, node.id)


def _workers(config: ClusterConfig) -> Iterator[ServerSpec]:
    workers = config.workers
    words = ("worker", "--model", workers.model, *_option_words(worker_options(config)))
    for number in range(workers.count):
        port = workers.port and workers.port + 2 * number
        yield _spec(config, f"worker-{number}", "worker", words, port, "", workers.cpus, workers.gpus)


def _spec(
    config: ClusterConfig,
    name: str,
    kind: Literal["store", "worker"],
    words: tuple[str, ...],
    port: int,
    node: str,
    cpus: float = 0,
    gpus: float = 0,
) -> ServerSpec:
    return ServerSpec(
        name, kind, node, port, words, config.folder, __version__, cpus, gpus, config.grace, config.start_seconds
    )


def _option_words(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            text = str(each).lower() if isinstance(each, bool) else str(each)
            yield f"--set={name.replace('-', '_')}={text}"
