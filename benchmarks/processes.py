"""Runs commands and helper processes of measurements, and measures their time and memory."""

from __future__ import annotations

import json
import pkgutil
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffolk.datastore.errors import Internal, InvalidArgument
from suffolk.datastore.host_memory import process_memory

POLL_S = 0.05
REFUSAL = "suffolk: "
"""Beginning of the line with which a command of Suffolk refuses its input."""


@dataclass(frozen=True, slots=True)
class Watched:
    """Output, time and memory of a finished command.

    Attributes:
        output: its standard output.
        seconds: wall time from start to end.
        cpu_seconds: processor time of the command and its children.
        peak_bytes: largest total resident memory of the command and its descendants, sampled 20 times a second. Shared
            pages and mapped files count once per process.
        largest_bytes: largest resident memory of a single one of these processes, as the system counts it.
    """

    output: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    largest_bytes: int


def run_watched(command: Sequence[str]) -> Watched:
    """Run ``command``.

    Raises:
        InvalidArgument: a command of Suffolk refused its input. The error holds the command's message.
        Internal: the command failed otherwise. The error holds its output.
    """
    before, peak, largest = _children_seconds(), 0, 0
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=errors, text=True)
        try:
            while process.poll() is None:
                now, one = family_memory(process.pid)
                peak, largest = max(peak, now), max(largest, one)
                time.sleep(POLL_S)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        seconds = time.perf_counter() - begin
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            said = errors.read().strip()
            if process.returncode == 2 and (reason := said.rpartition("\n")[2]).startswith(REFUSAL):
                raise InvalidArgument(reason.removeprefix(REFUSAL))
            raise Internal(f"'{' '.join(command)}' failed with {process.returncode}: {said[-400:]}")
        return Watched(output.read(), seconds, _children_seconds() - before, max(peak, largest), largest)


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def helper_command(function: Callable[..., dict[str, Any]], **arguments: Any) -> list[str]:
    """Return the command that calls ``function`` in its own process, and prints the result as one line of JSON.

    ``function``: a top-level function of a module. ``arguments``: values for JSON.
    """
    name = f"{function.__module__}:{function.__qualname__}"
    return [sys.executable, "-m", "suffolk.benchmarks.processes", name, json.dumps(arguments)]


def resident_memory() -> dict[str, int]:
    """Resident memory of this process, in bytes: ``anonymous`` (private) and ``file`` (mapped files, shared)."""
    return {"anonymous": process_memory("RssAnon"), "file": process_memory("RssFile")}


def grown_memory(before: dict[str, int]) -> dict[str, int]:
    """Return the growth of each kind of resident memory since ``before``, in bytes."""
    return {name: size - before[name] for name, size in resident_memory().items()}


def family_memory(process: int) -> tuple[int, int]:
    """Return resident bytes of a process and its descendants: their current sum, and the largest peak of a single process.

    Shared pages count once per process.
    """
    members = _family(process)
    now, peaks = ([process_memory(kind, member) for member in members] for kind in ("VmRSS", "VmHWM"))
    return sum(now), max(peaks)


def _family(process: int) -> list[int]:
    members = [process]
    for member in members:  # the list grows during the loop
        try:
            for thread in Path(f"/proc/{member}/task").iterdir():
                members += [int(child) for child in (thread / "children").read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return members


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("error: this runs helper processes of 'suffolk bench'; run that command", file=sys.stderr)
        sys.exit(2)
    print(json.dumps(pkgutil.resolve_name(sys.argv[1])(**json.loads(sys.argv[2]))))
