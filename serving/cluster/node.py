"""The nodes of a Ray cluster, and what is checked on each before servers start there."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from suffolk.datastore.errors import InvalidArgument, ResourceExhausted, Unavailable
from suffolk.datastore.version import __version__

LEAST_FREE_BYTES = 64 << 20
"""Free bytes that the cluster's folder needs on each node, for logs and the topology file."""
_CHECK_SECONDS = 60.0
HEAD = {"node:__internal_head__": 0.001}
"""What an actor or a task requests to run on the head node."""


@dataclass(frozen=True)
class Node:
    """A machine of the Ray cluster. ``name`` is Ray's node name, by default the address."""

    id: str
    name: str
    host: str


def alive_nodes() -> list[Node]:
    """The nodes that are alive."""
    return [
        Node(each["NodeID"], each["NodeName"].replace("/", "_"), each["NodeManagerAddress"])
        for each in ray.nodes()  # type: ignore[no-untyped-call]
        if each["Alive"]
    ]


def this_node() -> Node:
    """The node of this process. Raises Unavailable: Ray does not list it yet."""
    own = ray.get_runtime_context().get_node_id()
    for node in alive_nodes():
        if node.id == own:
            return node
    raise Unavailable(f"node {own} is not among Ray's nodes; try again")


def named_actors(namespace: str) -> dict[str, Any]:
    """Name -> handle of the named actors in a namespace."""
    found = ray.util.list_named_actors(all_namespaces=True)
    return {each["name"]: ray.get_actor(each["name"], namespace) for each in found if each["namespace"] == namespace}


def node_folder(folder: str, node: Node) -> Path:
    """The part of the cluster's folder that ``node`` uses. Nodes may share a file system."""
    return Path(folder) / node.name


def check_nodes(folder: str) -> list[Node]:
    """The alive nodes, after a check that servers can start on each.

    Raises:
        InvalidArgument: a node has another version of Suffolk, or none; or its folder cannot be written.
        ResourceExhausted: its disk is full.
        Unavailable: it does not answer.
    """
    nodes = alive_nodes()
    check = ray.remote(_check).options
    reports = {
        node: check(
            num_cpus=0, max_retries=1, scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)
        ).remote(str(node_folder(folder, node)))
        for node in nodes
    }
    for node, report in reports.items():
        _judge(node, report, folder)
    return nodes


def _check(folder: str) -> tuple[str, str, int]:
    """Version of Suffolk, problem with the folder (or empty), and free bytes there."""
    from suffolk.datastore.version import __version__ as version

    try:
        os.makedirs(folder, exist_ok=True)
        problem = "" if os.access(folder, os.W_OK) else "cannot be written"
        return version, problem, shutil.disk_usage(folder).free
    except OSError as error:
        return version, f"cannot be made ({error.strerror})", 0


def _judge(node: Node, report: Any, folder: str) -> None:
    try:
        version, problem, free = ray.get(report, timeout=_CHECK_SECONDS)
    except ray.exceptions.RayTaskError as error:
        raise InvalidArgument(
            f"node {node.name}: Suffolk cannot run there ({_last_line(error)}); install suffolk {__version__} on every node"
        ) from None
    except ray.exceptions.RayError as error:
        raise Unavailable(f"node {node.name} does not answer ({_last_line(error)}); see 'ray status'") from None
    if version != __version__:
        raise InvalidArgument(
            f"node {node.name} has suffolk {version}, and this machine {__version__}; install the same on every node"
        )
    if problem:
        raise InvalidArgument(
            f"folder {folder}: {node_folder(folder, node)} {problem} on node {node.name}; choose another"
        )
    if free < LEAST_FREE_BYTES:
        raise ResourceExhausted(
            f"folder {folder}: node {node.name} has {free >> 20} MiB free there, and needs {LEAST_FREE_BYTES >> 20}; free some"
        )


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1]
