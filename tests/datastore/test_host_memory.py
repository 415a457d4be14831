"""Tests the amount of memory that a process can still allocate."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffolk.datastore import host_memory

MIB = 1 << 20


def make_group(folder: Path, limit: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{3 * MIB}\n")
    (folder / "memory.stat").write_text(f"anon {MIB}\ninactive_file {MIB}\n")


@pytest.mark.parametrize(
    ("own", "outer", "expected"),
    [(f"{8 * MIB}", "max", 6 * MIB), ("max", f"{7 * MIB}", 5 * MIB), (f"{9 * MIB}", f"{8 * MIB}", 6 * MIB)],
)
def test_the_limits_of_our_cgroup_and_of_those_around_it_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, outer: str, expected: int
) -> None:
    """The limit of a service is in its own cgroup. The root cgroup has no limit."""
    groups, place = tmp_path / "cgroup", tmp_path / "self"
    groups.mkdir()
    make_group(groups / "system.slice", outer)
    make_group(groups / "system.slice" / "suffolk.service", own)
    place.write_text("1:name=systemd:/other\n0::/system.slice/suffolk.service\n")
    monkeypatch.setattr(host_memory, "_GROUPS", groups)
    monkeypatch.setattr(host_memory, "_SELF_GROUP", place)
    assert host_memory.host_memory() == expected


@pytest.mark.parametrize("content", ["0::/\n", "4:memory:/other\n", "0::/not/mounted/here\n"])
def test_a_container_is_the_root_of_its_cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    """In a container, the mounted root is the container's own cgroup, whatever the name of this cgroup outside."""
    make_group(tmp_path / "cgroup", f"{8 * MIB}")
    (tmp_path / "self").write_text(content)
    monkeypatch.setattr(host_memory, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(host_memory, "_SELF_GROUP", tmp_path / "self")
    assert host_memory.host_memory() == 6 * MIB
