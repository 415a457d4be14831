"""The topology files of a cluster: where its stores are. They lie in the cluster's folder on every node.

Workers and other clients read a file again when it changes (``fanout/servers.py``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from suffolk.serving.clients.fanout.topology import ReplicaAddress, Shard, Topology, write_topology
from suffolk.serving.cluster.config import StoresConfig
from suffolk.serving.cluster.shards import shards_at

LOG = logging.getLogger("suffolk.cluster")
FILE = "topology.json"


@dataclass(frozen=True)
class PublishedTopology:
    """A version of the files, by name. ``number`` grows; 0: there is none yet."""

    number: int = 0
    topologies: Mapping[str, Topology] = field(default_factory=dict)


def topologies_of(addresses: Mapping[str, str], stores: StoresConfig) -> dict[str, Topology]:
    """File name -> topology. A node is a zone.

    ``addresses``: node -> gRPC address of each store server that takes requests. These servers are the replicas of one shard.
    Without servers, their file is left out. A datastore with several shards has its own file. That file also lists
    absent copies: clients find out which copies answer.
    """
    found = {FILE: _topology(stores, ",".join(stores.names), [addresses])} if addresses else {}
    return found | {shards_file(name): _topology(stores, name, shards_at(stores, name)) for name in stores.sharded}


def topology_files(stores: StoresConfig) -> tuple[str, ...]:
    """The names of the files, in the order in which workers search them."""
    return (*([FILE] if stores.names else []), *map(shards_file, stores.sharded))


def shards_file(store: str) -> str:
    """The name of the file of a datastore with several shards."""
    return f"topology-{store.replace('/', '@')}.json"


def _topology(stores: StoresConfig, names: str, shards: Sequence[Mapping[str, str]]) -> Topology:
    """``shards``: for each shard, node -> address."""
    return Topology(
        shards=tuple(
            Shard(
                replicas=tuple(
                    ReplicaAddress(url=stores.url(address, names), zone=node)
                    for node, address in sorted(copies.items())
                )
            )
            for copies in shards
        )
    )


class TopologyWriter:
    """Writes the files of one process. Versions may arrive in any order, in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0

    def write(self, published: PublishedTopology, folder: Path) -> None:
        """Write a version that is newer than the last one. Raises OSError: ``folder`` cannot be written."""
        with self._lock:
            if published.number > self._number:
                folder.mkdir(parents=True, exist_ok=True)
                for name, topology in published.topologies.items():
                    write_topology(topology, folder / name)
                self._number = published.number

    def publish(self, published: PublishedTopology, folder: Path) -> None:
        """The same as ``write``, but logs errors instead of raising them."""
        try:
            self.write(published, folder)
        except OSError as error:
            LOG.error("%s: the topology files are not written, clients miss changes: %s", folder, error)
