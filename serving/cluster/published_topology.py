"""The topology file of a cluster: which stores take requests. It lies in the cluster's folder on every node.

Workers and other clients read it again when it changes (``fanout/servers.py``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from suffolk.serving.cluster.config import StoresConfig
from suffolk.serving.fanout.topology import ReplicaAddress, Shard, Topology, write_topology

LOG = logging.getLogger("suffolk.cluster")
FILE = "topology.json"


@dataclass(frozen=True)
class PublishedTopology:
    """A version of the file. ``number`` grows; 0: there is no store yet."""

    number: int = 0
    topology: Topology | None = None


def topology_of(addresses: Mapping[str, str], stores: StoresConfig) -> Topology:
    """Every store as a replica of one shard. ``addresses``: node name -> gRPC address; a node is a zone."""
    names = ",".join(stores.names)
    replicas = [
        ReplicaAddress(url=stores.url(address, names), zone=node) for node, address in sorted(addresses.items())
    ]
    return Topology(shards=(Shard(replicas=tuple(replicas)),))


class TopologyWriter:
    """Writes the file of one process. Versions may arrive in any order, in several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0

    def write(self, published: PublishedTopology, folder: Path) -> None:
        """Write a version that is newer than the last one. Raises OSError: ``folder`` cannot be written."""
        with self._lock:
            if published.topology is not None and published.number > self._number:
                folder.mkdir(parents=True, exist_ok=True)
                write_topology(published.topology, folder / FILE)
                self._number = published.number

    def publish(self, published: PublishedTopology, folder: Path) -> None:
        """As ``write``, but logs an error in place of raising it."""
        try:
            self.write(published, folder)
        except OSError as error:
            LOG.error("%s: the topology file is not written, clients miss changes: %s", folder, error)
