"""Tests the memory measurement of this process and of watched processes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from suffolk.benchmarks.processes import family_memory, resident_memory, run_watched
from suffolk.datastore.errors import Internal, InvalidArgument


def test_family_memory_counts_children() -> None:
    child = "import sys; data = b'x' * 60_000_000; print('ready', flush=True); sys.stdin.read()"
    parent = f"import subprocess, sys; data = b'x' * 60_000_000; subprocess.run([sys.executable, '-c', {child!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    now, largest = family_memory(process.pid)
    process.stdin.close()
    process.wait()
    process.stdout.close()
    assert now > 120_000_000
    assert 60_000_000 < largest < 120_000_000
    assert family_memory(process.pid) == (0, 0)


def test_resident_memory_is_this_processs() -> None:
    before = resident_memory()
    data = np.ones(50_000_000, np.uint8)
    assert resident_memory()["anonymous"] - before["anonymous"] > 40_000_000
    assert data[0] == 1


def test_watched_command_gives_output_time_and_memory() -> None:
    watched = run_watched(
        [sys.executable, "-c", "data = b'x' * 80_000_000; print('done'); import time; time.sleep(0.2)"]
    )
    assert watched.output == "done\n"
    assert watched.seconds >= 0.2
    assert watched.peak_bytes > 80_000_000
    assert watched.cpu_seconds > 0


def test_watched_command_that_fails_says_why() -> None:
    with pytest.raises(Internal, match="failed with 3.*no luck"):
        run_watched([sys.executable, "-c", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"])


def test_what_a_watched_command_refuses_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="^corpus x: no such file"):
        run_watched(
            [sys.executable, "-c", "import sys; print('suffolk: corpus x: no such file', file=sys.stderr); sys.exit(2)"]
        )
