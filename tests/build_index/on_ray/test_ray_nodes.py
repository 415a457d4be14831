"""Nodes that cannot do the work are refused before it begins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suffolk.datastore.errors import ResourceExhausted, Unsupported

pytest.importorskip("ray")

from suffolk.build_index.on_ray.cluster import Node, require_fit, versions  # noqa: E402  Ray may be missing

GOOD = Node("10.0.0.1", 4, 8e9, versions(), "/tmp", 10**10)


@pytest.mark.parametrize("name", ["suffolk", "ray", "Python"])
def test_other_versions_are_refused(name: str) -> None:
    require_fit([GOOD, GOOD], 10**9, 10**9)
    other = replace(GOOD, address="10.0.0.2", versions=versions() | {name: "0.0.1"})
    with pytest.raises(
        Unsupported, match=rf"node 10\.0\.0\.2: has {name} 0\.0\.1, and this machine has {versions()[name]}"
    ):
        require_fit([GOOD, other], 10**9, 10**9)


def test_too_little_disk_on_one_node_is_refused() -> None:
    full = replace(GOOD, address="10.0.0.2", free_bytes=10**8)
    with pytest.raises(
        ResourceExhausted, match=r"node 10\.0\.0\.2: a segment needs 1\.00 GB of disk in /tmp, and 100\.0 MB"
    ):
        require_fit([GOOD, full], 10**9, 10**9)


def test_one_node_must_have_the_memory_to_sort_a_segment() -> None:
    small = replace(GOOD, memory=1e9)
    require_fit([GOOD, small], 2 * 10**9, 1)
    with pytest.raises(
        ResourceExhausted, match=r"2\.00 GB of memory, and the largest node offers 1\.00 GB; .*--segment-tokens"
    ):
        require_fit([small, small], 2 * 10**9, 1)
