"""Checks whether the nodes of the connected Ray cluster can do the work of a build."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass

import ray

from suffolk.build_index.on_ray.nodes import RayNode, alive_nodes, ask_nodes
from suffolk.build_index.on_ray.scratch import remove_stale
from suffolk.build_index.report import megabytes
from suffolk.datastore.errors import Field, ResourceExhausted, Unavailable


@dataclass(frozen=True, slots=True)
class Scratch:
    """Where a node keeps temporary files. ``free_bytes``: free space in ``folder``."""

    folder: str
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """A connected cluster.

    Attributes:
        cores: all cores.
        node_cores: the cores of the smallest node, at least 1.
        this_node: id of the node of this machine.
    """

    cores: int
    node_cores: int
    this_node: str


def find_cluster(task_memory: int, task_disk: int) -> Cluster:
    """The connected cluster, with all nodes checked.

    Args:
        task_memory, task_disk: bytes that one task takes.

    Raises:
        ResourceExhausted: a node has too little disk, or no node has the memory.
        Unavailable: no node has a core. Others as ``ask_nodes``.
    """
    nodes = ask_nodes(dict.fromkeys(working_nodes(), find_scratch))
    if not nodes:
        raise Unavailable(Field("ray"), ": no node of the cluster has a core; start one with 'ray start --num-cpus N'")
    require_fit(nodes, task_memory, task_disk)
    cores = [int(node.cores) for node in nodes]
    return Cluster(sum(cores), min(cores), ray.get_runtime_context().get_node_id())


def require_fit(nodes: Mapping[RayNode, Scratch], task_memory: int, task_disk: int) -> None:
    """Refuse nodes that cannot do the work. Raises ResourceExhausted as ``find_cluster``."""
    for node, scratch in nodes.items():
        if scratch.free_bytes < task_disk:
            raise ResourceExhausted(
                f"node {node.name}: a segment needs {megabytes(task_disk)} of disk in {scratch.folder}, and "
                f"{megabytes(scratch.free_bytes)} are free; free space, set TMPDIR for 'ray start' there, or build with a smaller "
                "--segment-tokens"
            )
    most = max(node.memory for node in nodes)
    if most < task_memory:
        raise ResourceExhausted(
            f"segment tokens: sorting one segment takes {megabytes(task_memory)} of memory, and the largest node offers "
            f"{megabytes(most)}; give a smaller --segment-tokens, or start nodes with more --memory"
        )


def working_nodes() -> list[RayNode]:
    """The nodes that are alive and have a core."""
    return [node for node in alive_nodes() if node.cores >= 1]


def find_scratch() -> Scratch:
    """Runs on a node: removes the temporary files of killed tasks, and returns where this node keeps its own."""
    folder = remove_stale()
    return Scratch(str(folder), shutil.disk_usage(folder).free)
