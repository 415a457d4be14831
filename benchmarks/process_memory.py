"""Memory of processes."""

from __future__ import annotations

from pathlib import Path


def resident_memory() -> dict[str, int]:
    """What this process holds in memory, in bytes: ``anonymous`` (its own) and ``file`` (mapped files, shared by all readers)."""
    status = Path("/proc/self/status").read_text()
    return {"anonymous": _field(status, "RssAnon"), "file": _field(status, "RssFile")}


def peak_memory() -> int:
    """The most bytes that this process has held in memory at any time, mapped files included."""
    return _field(Path("/proc/self/status").read_text(), "VmHWM")


def grown_memory(before: dict[str, int]) -> dict[str, int]:
    """How much memory was added since ``before``, in bytes."""
    return {name: size - before[name] for name, size in resident_memory().items()}


def family_memory(process: int) -> tuple[int, int]:
    """Of a process and all its descendants: resident bytes now, added up (pages they share count for each), and the largest
    resident size that any one of them has had."""
    now = largest = 0
    for member in _family(process):
        try:
            status = Path(f"/proc/{member}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it ended after it was listed
            continue
        now += _field(status, "VmRSS")
        largest = max(largest, _field(status, "VmHWM"))
    return now, largest


def _family(process: int) -> list[int]:
    members = [process]
    for member in members:  # grows while it is read
        try:
            for thread in Path(f"/proc/{member}/task").iterdir():
                members += [int(child) for child in (thread / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return members


def _field(status: str, name: str) -> int:
    """Bytes of a line of /proc/PID/status; 0 if it has none, as for a process that has ended and was not waited for."""
    line = next((line for line in status.splitlines() if line.startswith(f"{name}:")), "")
    return int(line.split()[1]) * 1024 if line else 0
