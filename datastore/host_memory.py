"""How much memory this machine, or the container that it is, still has."""

from __future__ import annotations

from pathlib import Path

_UNLIMITED = 2**62
_GROUPS = Path("/sys/fs/cgroup")
_OWN_GROUP = Path("/proc/self/cgroup")


def host_memory() -> int:
    """Bytes that can still be allocated: what the kernel, our cgroup and those around it grant; 2**62 where neither is known."""
    return min(_host_available(), _cgroup_available())


def _host_available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: unknown, so not limited
    return _UNLIMITED


def _cgroup_available() -> int:
    own = _GROUPS / _own_name()
    return min(_available_in(group) for group in (own, *own.parents) if group.is_relative_to(_GROUPS))


def _own_name() -> str:
    """Of our cgroup, below the root: of version 2, or the root, which a container's own is for itself."""
    try:
        lines = _OWN_GROUP.read_text().splitlines()
    except OSError:
        lines = []
    return next((line[len("0::/") :] for line in lines if line.startswith("0::/")), "")


def _available_in(group: Path) -> int:
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit == "max":
            return _UNLIMITED
        used = int((group / "memory.current").read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return int(limit) - used + int(statistics.get("inactive_file", 0))  # page cache is given back on demand
    except (OSError, ValueError):
        return _UNLIMITED
