"""Finds the nodes of the connected Ray cluster, and calls a function on each."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from suffolk.build_index.on_ray.connection import ray_errors
from suffolk.datastore.errors import Internal, SuffolkError, Unavailable, Unsupported
from suffolk.datastore.version import __version__

CHECK_SECONDS = 60.0
"""Seconds within which every node must start a process and answer."""
T = TypeVar("T")


@dataclass(frozen=True)
class RayNode:
    """A machine of the Ray cluster.

    Attributes:
        name: Ray's node name, by default the address.
        host: the address.
        cores, memory: cores and bytes of memory that Ray may reserve on the machine.
    """

    id: str
    name: str
    host: str
    cores: float = 0.0
    memory: float = 0.0


def alive_nodes() -> list[RayNode]:
    """The nodes that are alive."""
    return [
        RayNode(
            each["NodeID"],
            each["NodeName"].replace("/", "_"),
            each["NodeManagerAddress"],
            each["Resources"].get("CPU", 0.0),
            each["Resources"].get("memory", 0.0),
        )
        for each in ray.nodes()  # type: ignore[no-untyped-call]
        if each["Alive"]
    ]


def ask_nodes(asked: Mapping[RayNode, Callable[[], T]]) -> dict[RayNode, T]:
    """Call a function on each node, all at the same time. Returns the answers.

    Raises:
        Unsupported: a node has other versions of Suffolk, Ray or Python, lacks Suffolk, or the function fails on it.
        Unavailable: a node does not answer.
        Lost: a node ended meanwhile.
    """
    task: Any = ray.remote(_answer).options
    answers = {
        node: task(
            num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)
        ).remote(function)
        for node, function in asked.items()
    }
    return {node: _received(node, answer) for node, answer in answers.items()}


def versions() -> dict[str, str]:
    """The versions that must be equal on all nodes, by name."""
    return {"suffolk": __version__, "ray": ray.__version__, "Python": platform.python_version()}


def require_same(node: RayNode, found: Mapping[str, str]) -> None:
    """Raise Unsupported if ``found``, the versions on ``node``, differ from the versions on this machine."""
    for name, here in versions().items():
        if found[name] != here:
            raise Unsupported(
                f"node {node.name}: has {name} {found[name]}, and this machine has {here}; install the same version there"
            )


def _answer(function: Callable[[], T]) -> tuple[dict[str, str], T]:
    return versions(), function()


def _received(node: RayNode, answer: Any) -> Any:
    try:
        with ray_errors():
            found, result = ray.get(answer, timeout=CHECK_SECONDS)
    except Internal as error:
        raise Unsupported(
            f"node {node.name}: it cannot take part ({error}); it needs suffolk {__version__} with the extra ray, and a TMPDIR "
            "that can be written"
        ) from error
    except SuffolkError as error:
        raise Unavailable(f"node {node.name}: {error}") from error
    require_same(node, found)
    return result
