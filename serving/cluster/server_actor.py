"""A Ray actor that runs one server as a child process on its node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suffolk.datastore.errors import ResourceExhausted, Unavailable
from suffolk.serving.cluster.node import Node, node_folder, this_node
from suffolk.serving.cluster.server_facts import server_facts
from suffolk.serving.cluster.server_process import Address, ServerProcess
from suffolk.serving.cluster.server_spec import ServerSpec

THREADS = 4
"""Calls that the actor answers at the same time: ``wait``, ``stop``, and two others."""


@dataclass(frozen=True)
class Placed:
    """A running server: its node and its address."""

    node: Node
    address: Address


class ServerActor:
    """Runs the server of ``spec``. Its calls run in different threads."""

    def __init__(self, spec: ServerSpec) -> None:
        self._spec = spec
        self._process: ServerProcess | None = None
        self._placed: Placed | None = None

    def start(self, port: int, stores: Mapping[str, str]) -> Placed:
        """Start the server, and wait until it takes requests.

        Args:
            port: gRPC port; 0 for a free one.
            stores: node id -> gRPC address of each running store. The one on this node is used if there is one.

        Raises:
            Unavailable, DeadlineExceeded: as ``ServerProcess.wait_ready``.
            ResourceExhausted: the cluster's folder cannot be written.
        """
        spec, node = self._spec, this_node()
        folder = node_folder(spec.folder, node)
        near = sorted(stores, key=lambda each: each != node.id)
        words = spec.command(node.host, port, folder, [stores[each] for each in near])
        try:
            (folder / "logs").mkdir(parents=True, exist_ok=True)
            self._process = ServerProcess(words, folder / "logs" / f"{spec.name}.log")
        except OSError as error:
            raise ResourceExhausted(f"{folder}: {error.strerror}; free disk space or choose another folder") from error
        self._placed = Placed(node, self._process.wait_ready(spec.start_seconds))
        return self._placed

    def wait(self) -> str:
        """Wait until the server ends, and return why."""
        if self._process is None:
            raise Unavailable(f"{self._spec.name} was not started")
        return self._process.wait()

    def stop(self) -> None:
        """Let running requests finish within the grace of the spec, and end the server."""
        if self._process is not None:
            self._process.stop(self._spec.grace)

    def describe(self) -> tuple[ServerSpec, Placed | None]:
        """The spec, and where the server runs; None while it starts."""
        return self._spec, self._placed

    def facts(self) -> dict[str, Any]:
        """What the server says of itself (``server_facts``). Raises Unavailable."""
        if self._placed is None:
            raise Unavailable(f"{self._spec.name} is starting")
        return server_facts(self._spec.kind, self._placed.address.grpc)
