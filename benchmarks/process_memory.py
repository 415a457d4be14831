"""Measures the memory of processes."""

from __future__ import annotations

from pathlib import Path


def resident_memory() -> dict[str, int]:
    """Resident memory of this process, in bytes: ``anonymous`` (private) and ``file`` (mapped files, shared)."""
    status = Path("/proc/self/status").read_text()
    return {"anonymous": _field(status, "RssAnon"), "file": _field(status, "RssFile")}


def private_memory(process: int) -> int:
    """Resident memory of a process in bytes, without mapped files."""
    return _field(Path(f"/proc/{process}/status").read_text(), "RssAnon")


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes, mapped files included."""
    return _field(Path("/proc/self/status").read_text(), "VmHWM")


def grown_memory(before: dict[str, int]) -> dict[str, int]:
    """Growth since ``before``, in bytes."""
    return {name: size - before[name] for name, size in resident_memory().items()}


def family_memory(process: int) -> tuple[int, int]:
    """Resident bytes of a process and its descendants: the current sum, and the peak of any one.

    Shared pages count once per process.
    """
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
    for member in members:  # the list grows during the loop
        try:
            for thread in Path(f"/proc/{member}/task").iterdir():
                members += [int(child) for child in (thread / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return members


def _field(status: str, name: str) -> int:
    """Bytes on a line of /proc/PID/status; 0 if the line is missing, as for a zombie."""
    line = next((line for line in status.splitlines() if line.startswith(f"{name}:")), "")
    return int(line.split()[1]) * 1024 if line else 0
