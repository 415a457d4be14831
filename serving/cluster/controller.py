"""The actor that keeps a cluster running and answers questions about it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import ray

from suffolk.build_index.on_ray.nodes import alive_nodes
from suffolk.datastore.files import write_atomically
from suffolk.datastore.settings import from_json
from suffolk.datastore.version import __version__
from suffolk.serving.cluster.config import ClusterConfig
from suffolk.serving.cluster.copies import copies_of
from suffolk.serving.cluster.node import node_folder, this_node
from suffolk.serving.cluster.published_topology import FILE, PublishedTopology, TopologyWriter
from suffolk.serving.cluster.supervisor import ManagedServer, Supervisor, results_of
from suffolk.serving.store.replication.peer import have_leaders

CONTROLLER = "controller"
"""Name of the actor, in the namespace of its cluster."""
THREADS = 16
"""Calls that the actor answers at the same time."""
_FACTS_SECONDS = 6.0


def namespace_of(cluster: str) -> str:
    """The Ray namespace of a cluster."""
    return f"suffolk-{cluster}"


class Controller:
    """Supervises the servers of one cluster, on the head node. If it dies, Ray restarts it; the servers go on meanwhile.

    The wanted cluster is kept in a file, so that a restarted controller knows of later changes. Thread-safe.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self._folder = node_folder(config.folder, this_node())
        self._file = self._folder / "cluster.json"
        self._folder.mkdir(parents=True, exist_ok=True)
        if ray.get_runtime_context().was_current_actor_reconstructed:
            config = from_json(ClusterConfig, json.loads(self._file.read_text(encoding="utf-8")), str(self._file))
        self._topology = TopologyWriter()
        self._front: tuple[Any, ...] = ()
        self._supervisor = Supervisor(config, namespace_of(config.name), self._publish)
        self.apply(config)

    def apply(self, config: ClusterConfig) -> None:
        """Make ``config`` the wanted cluster, and keep it in the file. Raises ResourceExhausted, PermissionDenied: it
        cannot be written."""
        write_atomically(self._file, json.dumps(asdict(config)).encode())
        self._supervisor.apply(config)

    def config(self) -> ClusterConfig:
        """The wanted cluster."""
        return self._supervisor.config

    def keep_front(self, settings: tuple[Any, ...]) -> None:
        """Remember the settings of the deployed front. A restarted controller, perhaps of another version, does not know
        these settings."""
        self._front = settings

    def front(self) -> tuple[Any, ...]:
        """The settings that ``keep_front`` got last."""
        return self._front

    def version(self) -> str:
        """The version of Suffolk that this process runs."""
        return __version__

    def settled(self) -> bool:
        """Whether exactly the wanted servers run, and each live store has a leader."""
        return self._supervisor.settled() and have_leaders(copies_of(self.config().stores))

    def states(self) -> dict[str, tuple[str, str]]:
        """Name of each server -> its state, and why its last start failed; empty if it did not fail."""
        return {slot.spec.name: (slot.state, slot.error if slot.pause else "") for slot in self._supervisor.slots()}

    def workers(self) -> list[str]:
        """HTTP addresses of the workers that take requests."""
        return [
            slot.placed.address.http
            for slot in self._supervisor.slots()
            if slot.spec.kind == "worker" and slot.state == "ready" and slot.placed
        ]

    def status(self) -> dict[str, Any]:
        """Nodes, servers and the last events, as a JSON object (docs/how-to/run-a-cluster.md)."""
        slots = self._supervisor.slots()
        asked = {slot.spec.name: slot.actor.facts.remote(self._url(slot)) for slot in slots if slot.state == "ready"}
        facts = dict(zip(asked, results_of([*asked.values()], _FACTS_SECONDS), strict=True))
        return {
            "name": self._supervisor.config.name,
            "version": __version__,
            "settled": self.settled(),
            "topology": str(self._folder / FILE),
            "nodes": [asdict(node) for node in alive_nodes()],
            "servers": [_described(slot, facts.get(slot.spec.name)) for slot in slots],
            "events": self._supervisor.events(),
        }

    def close(self, graceful: bool = True) -> list[str]:
        """Stop all servers; returns their names. The caller kills this actor afterwards."""
        names = self._supervisor.close(graceful)
        self._file.unlink(missing_ok=True)
        return names

    def _url(self, slot: ManagedServer) -> str:
        """The URL at which the ready server of a slot answers."""
        address, config = slot.address() or "", self.config()
        return config.stores.url(address) if slot.spec.kind == "store" else config.workers.url(address)

    def _publish(self, topology: PublishedTopology) -> None:
        """Write the topology files on this node, because perhaps no server runs here to write them."""
        self._topology.publish(topology, self._folder)


def _described(slot: ManagedServer, facts: tuple[Any, str] | None) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if facts is not None:
        result, error = facts
        said = result or {"problem": error}
    placed = slot.placed
    where = {} if placed is None else {"node": placed.node.name, **asdict(placed.address)}
    own = {"name": slot.spec.name, "kind": slot.spec.kind, "state": slot.state, "restarts": slot.restarts}
    if slot.spec.shard:
        own["shard"] = slot.spec.shard
    return own | where | {"error": slot.error} | said
