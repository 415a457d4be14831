"""Memory of processes."""

from __future__ import annotations

import os
from pathlib import Path


def resident_memory() -> dict[str, int]:
    """What this process holds in memory, in bytes: ``anonymous`` (its own) and ``file`` (mapped files, shared by all readers)."""
    fields = {"RssAnon": "anonymous", "RssFile": "file"}
    found = dict.fromkeys(fields.values(), 0)
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in fields:
            found[fields[name]] = int(value.split()[0]) * 1024
    return found


def grown_memory(before: dict[str, int]) -> dict[str, int]:
    """How much memory was added since ``before``, in bytes."""
    return {name: size - before[name] for name, size in resident_memory().items()}


def processes_memory(root: int) -> tuple[int, int]:
    """Resident bytes of process ``root`` and of it with all its descendants (pages they share count once per process)."""
    parents, sizes = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
                pages = int((folder / "statm").read_text().split()[1])
            except (FileNotFoundError, ProcessLookupError):  # it ended between the listing and the reading
                continue
            # the name in parentheses may hold blanks
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
            sizes[int(folder.name)] = pages * os.sysconf("SC_PAGE_SIZE")
    total = sum(size for process, size in sizes.items() if _descends(process, root, parents))
    return sizes.get(root, 0), total


def _descends(process: int, root: int, parents: dict[int, int]) -> bool:
    while process != root and process in parents:
        process = parents[process]
    return process == root
