"""Checks whether the nodes of the connected Ray cluster can do the work of a build, and makes temporary folders on them."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import ray

from suffolk.build_index.on_ray.nodes import RayNode, alive_nodes, ask_nodes
from suffolk.build_index.report import megabytes
from suffolk.datastore.errors import Field, PermissionDenied, ResourceExhausted, Unavailable


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new folder, which is removed at the end. It is locked, so ``remove_stale`` does not remove it."""
    with _locked(_base()):
        folder = Path(tempfile.mkdtemp(dir=_base()))
        held = _open_locked(folder, fcntl.LOCK_EX)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def remove_stale() -> Path:
    """Remove the folders of killed tasks. Returns the parent of these folders."""
    with _locked(_base()):
        for folder in _base().iterdir():
            if folder.is_symlink() or not folder.is_dir():
                continue  # no task created this folder
            try:
                held = _open_locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue  # the folder's task still runs
            shutil.rmtree(folder, ignore_errors=True)
            os.close(held)
    return _base()


def _base() -> Path:
    """The folder of all tasks of this user. Raises PermissionDenied if other users can change the folder."""
    folder = Path(tempfile.gettempdir(), f"suffolk-build-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionDenied(
            f"{folder} must be a folder of user {os.getuid()} with mode 700, and no link; "
            "remove it, or set TMPDIR to another folder"
        )
    return folder


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    held = _open_locked(folder, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(held)


def _open_locked(folder: Path, kind: int) -> int:
    """Lock a folder until the returned descriptor is closed. The system closes it when the process ends."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, kind)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@dataclass(frozen=True, slots=True)
class Scratch:
    """The folder of a node's temporary files. ``free_bytes``: free space in ``folder``."""

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
        Unavailable: no node has a core. Other errors are those of ``ask_nodes``.
    """
    nodes = ask_nodes(dict.fromkeys(working_nodes(), find_scratch))
    if not nodes:
        raise Unavailable(Field("ray"), ": no node of the cluster has a core; start one with 'ray start --num-cpus N'")
    require_fit(nodes, task_memory, task_disk)
    cores = [int(node.cores) for node in nodes]
    return Cluster(sum(cores), min(cores), ray.get_runtime_context().get_node_id())


def require_fit(nodes: Mapping[RayNode, Scratch], task_memory: int, task_disk: int) -> None:
    """Refuse nodes that cannot do the work. Raises the ResourceExhausted of ``find_cluster``."""
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
    """Runs on a node. Remove the temporary files of killed tasks, and return the folder of this node's temporary files."""
    folder = remove_stale()
    return Scratch(str(folder), shutil.disk_usage(folder).free)
