"""Drops and limits the page cache of files, and measures the disk's uncached speed."""

from __future__ import annotations

import ctypes
import errno
import math
import mmap
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from suffolk.datastore.errors import Internal

PAGE = mmap.PAGESIZE
RUN_BYTES = 64 * PAGE
MADV_PAGEOUT = 21
"""Linux 5.4: reclaim these pages now. Python's mmap module does not define this constant."""
SLACK = 0.95
MAX_SWEEPS = 100


def forget_files(paths: Sequence[Path]) -> None:
    """Drop the cached pages of files that no process maps. The next reader then waits for the disk."""
    for path in paths:
        _drop(path)


def random_read_seconds(path: Path, count: int, seed: int) -> list[float]:
    """Measure the seconds of uncached 4 KiB reads at random places. Returns [] if the file system has no direct reads."""
    pages = max(1, path.stat().st_size // PAGE)
    buffer = mmap.mmap(-1, PAGE)  # direct reads need page-aligned memory
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return []
        raise
    seconds = []
    try:
        for page in np.random.default_rng(seed).integers(0, pages, count).tolist():
            begin = time.perf_counter()
            os.preadv(descriptor, [buffer], page * PAGE)
            seconds.append(time.perf_counter() - begin)
    finally:
        os.close(descriptor)
    return seconds


class ResidentLimit:
    """Keeps at most ``limit`` bytes of mapped files in memory, by returning random runs of 64 pages to the system.

    This simulates a machine with less memory. It needs no privileges, and affects no other process. A real system keeps
    the most used pages, so times under this limit are upper bounds.
    """

    def __init__(self, paths: Sequence[Path], limit: int, resident: Callable[[], int | None], seed: int) -> None:
        self._limit = limit
        self._resident = resident
        self._chooser = np.random.default_rng(seed)
        self._madvise = ctypes.CDLL(None, use_errno=True).madvise
        self._madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._runs = [
            (path, begin + offset, offset, min(RUN_BYTES, end - begin - offset))
            for path in paths
            for begin, end in _mappings(path)
            for offset in range(0, end - begin, RUN_BYTES)
        ]

    def enforce(self) -> None:
        """Reduce the files' resident memory to the limit.

        Raises:
            Internal: the system does not reclaim pages, or does not report their number.
        """
        for _ in range(MAX_SWEEPS):
            resident = self._resident()
            if resident is None:
                break
            if resident <= self._limit:
                return
            share = min(1.0, 1.05 * (resident - SLACK * self._limit) / resident)
            count = min(len(self._runs), math.ceil(share * len(self._runs)))
            for index in self._chooser.choice(len(self._runs), count, replace=False).tolist():
                self._give_back(*self._runs[index])
        raise Internal("the files' resident memory cannot be limited: this needs Linux 5.4, and the files' owner")

    def _give_back(self, path: Path, address: int, offset: int, size: int) -> None:
        self._madvise(address, size, MADV_PAGEOUT)
        _drop(path, offset, size)  # pages that were read ahead and never mapped


def _drop(path: Path, offset: int = 0, size: int = 0) -> None:
    """Drop the cached pages of a part of a file that no process maps. ``size`` 0: up to the file's end."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), offset, size, os.POSIX_FADV_DONTNEED)


def _mappings(path: Path) -> list[tuple[int, int]]:
    """Return start and end addresses of this process's mappings of a file. Mappings must begin at the file's first byte."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == str(path.resolve()) and int(fields[2], 16) == 0:
            begin, _, end = fields[0].partition("-")
            found.append((int(begin, 16), int(end, 16)))
    return found
