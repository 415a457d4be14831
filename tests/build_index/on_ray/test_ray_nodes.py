"""Nodes that cannot do the work are refused before it begins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suffolk.datastore.errors import ResourceExhausted, Unsupported

pytest.importorskip("ray")

from suffolk.build_index.on_ray.cluster import Scratch, require_fit  # noqa: E402  Ray may be missing
from suffolk.build_index.on_ray.nodes import RayNode, require_same, versions  # noqa: E402

A = RayNode("1", "a", "10.0.0.1", 4, 8e9)
B = RayNode("2", "b", "10.0.0.2", 4, 8e9)
FREE = Scratch("/tmp", 10**10)


@pytest.mark.parametrize("name", ["suffolk", "ray", "Python"])
def test_other_versions_are_refused(name: str) -> None:
    require_same(A, versions())
    with pytest.raises(Unsupported, match=rf"node b: has {name} 0\.0\.1, and this machine has {versions()[name]}"):
        require_same(B, versions() | {name: "0.0.1"})


def test_too_little_disk_on_one_node_is_refused() -> None:
    require_fit({A: FREE, B: FREE}, 10**9, 10**9)
    with pytest.raises(ResourceExhausted, match=r"node b: a segment needs 1\.00 GB of disk in /tmp, and 100\.0 MB"):
        require_fit({A: FREE, B: replace(FREE, free_bytes=10**8)}, 10**9, 10**9)


def test_one_node_must_have_the_memory_to_sort_a_segment() -> None:
    small = replace(B, memory=1e9)
    require_fit({A: FREE, small: FREE}, 2 * 10**9, 1)
    with pytest.raises(
        ResourceExhausted, match=r"2\.00 GB of memory, and the largest node offers 1\.00 GB; .*--segment-tokens"
    ):
        require_fit({replace(A, memory=1e9): FREE, small: FREE}, 2 * 10**9, 1)
