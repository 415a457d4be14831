"""Connects to a Ray cluster, and checks its nodes."""

from __future__ import annotations

import logging
import os
import platform
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from suffolk.build_index.on_ray.failures import ray_errors, short
from suffolk.build_index.on_ray.scratch import remove_stale
from suffolk.build_index.report import megabytes
from suffolk.datastore.errors import (
    Internal,
    InvalidArgument,
    ResourceExhausted,
    SuffolkError,
    Unavailable,
    Unsupported,
)
from suffolk.datastore.version import __version__

CONNECT_SECONDS = 5.0
CHECK_SECONDS = 60.0
"""Time in which every node must start a process and answer."""


@dataclass(frozen=True, slots=True)
class Node:
    """What a node says of itself. ``free_bytes``: free space for temporary files in ``folder``."""

    address: str
    cores: float
    memory: float
    versions: dict[str, str]
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


@contextmanager
def connected(address: str, threads: int) -> Iterator[None]:
    """A connection to the cluster at ``address``. At the end the tasks of this process are ended.

    Args:
        address: "local" starts a cluster of this machine alone, for the time of the context; "auto" is the running cluster.
        threads: cores of a local cluster; 0: all.

    Raises:
        InvalidArgument: ``address`` has a wrong form.
        Unavailable: there is no cluster. Unsupported: it has another version of Ray or Python.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"include_dashboard": False, "num_cpus": threads or None} if address == "local" else {}
    if address not in ("local", "auto"):
        _require_answer(address)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **options)
    except (ConnectionError, ray.exceptions.RayError, ValueError) as error:
        raise Unavailable(
            f"ray: {address}: no cluster can be joined ({short(error)}); run 'ray start --head' on one machine, and "
            "'ray start --address=HEAD:6379' on each other one, this one included"
        ) from error
    except RuntimeError as error:  # Ray raises it if versions differ
        raise Unsupported(f"ray: {address}: {short(error)}; use the same versions on all machines") from error
    try:
        yield
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit():
        raise InvalidArgument(
            f"ray: {address}: not an address; give HOST:PORT, auto or local. Of a cluster, run the command on one of its nodes"
        )
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise Unavailable(
            f"ray: {address}: no answer ({error}); check the address and the network, or start a cluster there with "
            "'ray start --head'"
        ) from error


def find_cluster(task_memory: int, task_disk: int) -> Cluster:
    """The connected cluster, with all nodes checked.

    Args:
        task_memory, task_disk: bytes that one task takes.

    Raises:
        Unsupported: a node has other versions of Suffolk, Ray or Python, or lacks Suffolk.
        ResourceExhausted: a node has too little disk, or no node has the memory.
        Unavailable: no node has a core, or one does not answer. Lost: a node ended meanwhile.
    """
    with ray_errors():
        nodes = _ask_nodes()
    if not nodes:
        raise Unavailable("ray: no node of the cluster has a core; start one with 'ray start --num-cpus N'")
    require_fit(nodes, task_memory, task_disk)
    cores = [int(node.cores) for node in nodes]
    return Cluster(sum(cores), min(cores), ray.get_runtime_context().get_node_id())


def require_fit(nodes: list[Node], task_memory: int, task_disk: int) -> None:
    """Refuse nodes that cannot do the work. Raises as ``find_cluster``."""
    ours = versions()
    for node in nodes:
        for name, there in node.versions.items():
            if there != ours[name]:
                raise Unsupported(
                    f"node {node.address}: has {name} {there}, and this machine has {ours[name]}; install the same version there"
                )
        if node.free_bytes < task_disk:
            raise ResourceExhausted(
                f"node {node.address}: a segment needs {megabytes(task_disk)} of disk in {node.folder}, and "
                f"{megabytes(node.free_bytes)} are free; free some, set TMPDIR for 'ray start' there, or build with a smaller "
                "--segment-tokens"
            )
    most = max(node.memory for node in nodes)
    if most < task_memory:
        raise ResourceExhausted(
            f"segment tokens: sorting one segment takes {megabytes(task_memory)} of memory, and the largest node offers "
            f"{megabytes(most)}; give a smaller --segment-tokens, or start nodes with more --memory"
        )


def working_nodes() -> list[dict[str, Any]]:
    """The nodes that are alive and have a core, as Ray describes them."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node for node in nodes if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]


def versions() -> dict[str, str]:
    """The versions that must be equal on all nodes, by name."""
    return {"suffolk": __version__, "ray": ray.__version__, "Python": platform.python_version()}


def node_facts() -> tuple[dict[str, str], str, int]:
    """Runs on a node: its versions, and the folder and the free bytes for its temporary files."""
    folder = remove_stale()
    return versions(), str(folder), shutil.disk_usage(folder).free


def _ask_nodes() -> list[Node]:
    task = ray.remote(node_facts)
    asked = []
    for node in working_nodes():
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        reference = task.options(num_cpus=0, max_retries=0, scheduling_strategy=there).remote()
        asked.append((node["NodeManagerAddress"], node["Resources"], reference))
    return [_answer(address, resources, reference) for address, resources, reference in asked]


def _answer(address: str, resources: dict[str, float], reference: Any) -> Node:
    try:
        with ray_errors():
            found, folder, free = ray.get(reference, timeout=CHECK_SECONDS)
    except Internal as error:
        raise Unsupported(
            f"node {address}: it cannot take part ({error}); it needs suffolk {__version__} with the extra ray, and a TMPDIR that "
            "can be written"
        ) from error
    except SuffolkError as error:
        raise Unavailable(f"node {address}: {error}") from error
    return Node(address, resources["CPU"], resources.get("memory", 0.0), found, folder, free)
