"""How torch's CPU threads wait for each other: they spin on free CPUs, and sleep while other programs need the CPUs.

After each parallel operation, the threads of a team wait for the last of them. libgomp, torch's OpenMP, lets them spin for
milliseconds. This is fastest on free CPUs, because a sleeping thread wakes up late. But beside a busy program, a spinning thread
takes the CPU from the thread that it waits for: a pass takes several times as long, and a pass of several rows up to thirty times.

If there are more OpenMP threads than CPUs, libgomp spins for microseconds only (``GOMP_SPINCOUNT`` in its manual). Each thread that
runs a parallel operation keeps a team. So a second team that does nothing lets the first one sleep. The number of threads of an
operation stays the same, and so do its results.
"""

from __future__ import annotations

import ctypes
import os
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread

import torch

BUSY, FREE = 0.5, 0.3
"""CPUs that other programs take from torch's threads: from ``BUSY`` on, the threads sleep; below ``FREE``, they spin again."""
INTERVAL = 0.5
"""Seconds between two measurements."""
_ELEMENTS = 1 << 20
"""An operation on so many numbers is parallel."""
_STAT = Path("/proc/stat")
_SOFT = 1
"""OpenMP's ``omp_pause_soft``."""


def release_team() -> None:
    """End the team of the calling thread, which would let the teams of other threads sleep. A later operation makes a new one."""
    with suppress(OSError, AttributeError):  # another OpenMP
        ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libgomp.so.1")).omp_pause_resource_all(_SOFT)


class ThreadWaits:
    """Lets torch's threads sleep while other programs use the CPUs of this process. ``update`` is thread-safe.

    Attributes:
        asleep: whether waiting threads sleep now.
    """

    def __init__(self, used: Callable[[], float] | None = None) -> None:
        """``used``: how many CPUs other programs have used since the last call; default: ``OtherPrograms``."""
        self._used = used or OtherPrograms().used
        self._due = time.monotonic() + INTERVAL
        self._lock = Lock()
        self._end_team: weakref.finalize[[], ThreadWaits] | None = None

    @property
    def asleep(self) -> bool:
        return self._end_team is not None and self._end_team.alive

    def update(self) -> None:
        """Measure the other programs, and let waiting threads sleep or spin. Call it before a pass; it measures twice a second."""
        if time.monotonic() < self._due or not self._lock.acquire(blocking=False):
            return
        try:
            self._due = time.monotonic() + INTERVAL
            threads = torch.get_num_threads()
            taken = self._used() - max(0, len(os.sched_getaffinity(0)) - threads)
            if self.asleep and taken < FREE:
                self.spin()
            elif not self.asleep and taken >= BUSY and threads > 1:
                self.sleep()
        finally:
            self._lock.release()

    def sleep(self) -> None:
        """Let waiting threads sleep from now on, by a second team. Not thread-safe."""
        ended = Event()
        Thread(target=_hold_team, args=(ended,), name="second-team", daemon=True).start()
        self._end_team = weakref.finalize(self, ended.set)

    def spin(self) -> None:
        """Let waiting threads spin again. Not thread-safe."""
        if self._end_team is not None:
            self._end_team()


class OtherPrograms:
    """Measures what other programs use of the CPUs on which this process may run. Not thread-safe."""

    def __init__(self) -> None:
        self._time, self._seconds = time.monotonic(), _seconds_of_others()

    def used(self) -> float:
        """How many CPUs they have used on average since the last call, or since the start."""
        before, known = self._time, self._seconds
        self._time, self._seconds = time.monotonic(), _seconds_of_others()
        return max(0.0, (self._seconds - known) / (self._time - before))


def _seconds_of_others() -> float:
    """CPU seconds of all programs but this one since the machine started; 0 if the system does not tell."""
    names = {f"cpu{each}" for each in os.sched_getaffinity(0)}
    ticks = 0
    with suppress(OSError):
        for line in _STAT.read_text().splitlines():
            name, *fields = line.split()
            if name in names:
                user, nice, system, _, _, interrupts, soft_interrupts = map(int, fields[:7])
                ticks += user + nice + system + interrupts + soft_interrupts
    return ticks / os.sysconf("SC_CLK_TCK") - time.process_time() if ticks else 0.0


def _hold_team(ended: Event) -> None:
    torch.ones(_ELEMENTS, device="cpu")
    ended.wait()
