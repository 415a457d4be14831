"""The free memory of this machine or container, and the memory of processes."""

from __future__ import annotations

from pathlib import Path

_UNLIMITED = 2**62
_GROUPS = Path("/sys/fs/cgroup")
_SELF_GROUP = Path("/proc/self/cgroup")


def host_memory() -> int:
    """Bytes that can still be allocated: the minimum over the machine and all enclosing cgroups; 2**62 if unknown."""
    free = _bytes_of(Path("/proc/meminfo"), "MemAvailable") or _UNLIMITED  # not Linux: no limit is known
    innermost = _GROUPS / _group_name()
    groups = (group for group in (innermost, *innermost.parents) if group.is_relative_to(_GROUPS))
    return min(free, *map(_available_in, groups))


def process_memory(kind: str, process: int | str = "self") -> int:
    """Bytes of memory of a process; 0 if it has ended.

    ``kind``: the name of a line of /proc/PID/status: VmRSS (resident), VmHWM (the most that was resident), RssAnon (private) or
    RssFile (mapped files).
    """
    return _bytes_of(Path(f"/proc/{process}/status"), kind)


def _bytes_of(file: Path, name: str) -> int:
    """The size on the line ``name`` of a file, which gives it in KiB. 0 if the file or the line is missing."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), 0)


def _group_name() -> str:
    """The path of this process's cgroup (version 2) below the root; empty if unknown, or in a container's root group."""
    try:
        lines = _SELF_GROUP.read_text().splitlines()
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
        return int(limit) - used + int(statistics.get("inactive_file", 0))  # the kernel can reclaim this page cache
    except (OSError, ValueError):
        return _UNLIMITED
