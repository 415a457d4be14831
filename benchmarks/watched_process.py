"""Runs a command to its end and measures its time and memory."""

from __future__ import annotations

import resource
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from suffolk.benchmarks.process_memory import family_memory
from suffolk.datastore.errors import Internal

POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Watched:
    """Output, time and memory of a finished command.

    Attributes:
        output: its standard output.
        seconds: wall time from start to end.
        cpu_seconds: processor time of the command and its children.
        peak_bytes: largest total resident memory of the command and its descendants, sampled 20 times a second. Shared
            pages and mapped files count once per process.
        largest_bytes: largest resident memory of any one of these processes, as the system counts it.
    """

    output: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    largest_bytes: int


def run_watched(command: Sequence[str]) -> Watched:
    """Run ``command``.

    Raises:
        Internal: the command failed; with its output.
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
            raise Internal(f"'{' '.join(command)}' failed with {process.returncode}: {errors.read().strip()[-400:]}")
        return Watched(output.read(), seconds, _children_seconds() - before, max(peak, largest), largest)


def _children_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
