"""The nodes of a cluster, and the checks of each node before servers start there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray

from suffolk.build_index.on_ray.connection import Lost
from suffolk.build_index.on_ray.nodes import RayNode, alive_nodes, ask_nodes
from suffolk.datastore.errors import InvalidArgument, ResourceExhausted, Unavailable
from suffolk.serving.store.live_store.identity import has_log, is_live

LEAST_FREE_BYTES = 64 << 20
"""Free bytes that the cluster's folder needs on each node, for logs and the topology file."""
HEAD = {"node:__internal_head__": 0.001}
"""What an actor or a task requests to run on the head node."""


def this_node() -> RayNode:
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


def node_folder(folder: str, node: RayNode) -> Path:
    """The part of the cluster's folder that ``node`` uses. Nodes may share a file system."""
    return Path(folder) / node.name


def check_nodes(folder: str, live: Collection[str]) -> dict[RayNode, LiveFiles]:
    """The alive nodes, after a check that servers can start on each, and their files of the live stores ``live``.

    Raises:
        Unsupported: a node has other versions of Suffolk, Ray or Python, or lacks Suffolk.
        InvalidArgument: its folder cannot be written. ResourceExhausted: its disk is full.
        Unavailable: it does not answer.
    """
    try:
        nodes = ask_nodes({node: partial(_check, node_folder(folder, node), live) for node in alive_nodes()})
    except Lost as error:
        raise Unavailable(f"{error}; see 'ray status', and try again") from error
    for node, (problem, free, _) in nodes.items():
        if problem:
            raise InvalidArgument(
                f"folder {folder}: {node_folder(folder, node)} {problem} on node {node.name}; choose another"
            )
        if free < LEAST_FREE_BYTES:
            raise ResourceExhausted(
                f"folder {folder}: node {node.name} has {free >> 20} MiB free there, and needs {LEAST_FREE_BYTES >> 20}; free space"
            )
    return {node: files for node, (_, _, files) in nodes.items()}


def _check(folder: Path, live: Collection[str]) -> tuple[str, int, LiveFiles]:
    """Runs on a node. Returns the problem with the folder, or an empty text; its free bytes; and its files of live
    stores."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        problem = "" if os.access(folder, os.W_OK) else "cannot be written"
        return problem, shutil.disk_usage(folder).free, find_live_files(folder, live)
    except OSError as error:
        return f"cannot be made or read ({error.strerror})", 0, LiveFiles()


@dataclass(frozen=True)
class LiveFiles:
    """Live stores and their shards on a node: NAME, or NAME@NUMBER-of-TOTAL.

    Attributes:
        found: the live stores and shards that have a folder.
        with_documents: which of these have appended documents.
    """

    found: frozenset[str] = frozenset()
    with_documents: frozenset[str] = frozenset()


def find_live_files(folder: Path, stores: Collection[str]) -> LiveFiles:
    """The files of ``stores``. ``folder``: the node's part of the cluster's folder."""
    live = folder / "live"
    places = [path for name in stores for path in (live / name, *live.glob(f"{name}@*-of-*")) if is_live(path)]
    return LiveFiles(
        frozenset(str(path.relative_to(live)) for path in places),
        frozenset(str(path.relative_to(live)) for path in places if has_log(path)),
    )
