"""How much memory this machine, or the container that it is, still has."""

from __future__ import annotations

from pathlib import Path

_UNLIMITED = 2**62


def host_memory() -> int:
    """Bytes that can still be allocated: what the kernel and our cgroup grant; 2**62 where neither is known."""
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
    group = Path("/sys/fs/cgroup")
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit == "max":
            return _UNLIMITED
        used = int((group / "memory.current").read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return int(limit) - used + int(statistics.get("inactive_file", 0))  # page cache is given back on demand
    except (OSError, ValueError):
        return _UNLIMITED
