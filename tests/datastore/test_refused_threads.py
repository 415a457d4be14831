"""Tests sorting and merging on a system that starts no more threads. They fail soon, with an error of the closed set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from suffolk.datastore.segment import write_segment
from tests.support.stores import separated

LIMIT = """
import resource, sys
import numpy as np
from suffolk.datastore import _native
from suffolk.datastore.errors import ResourceExhausted

def used():
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmSize:"))

def limit(size):
    resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))

def expect_no_thread(work):
    try:
        work()
    except ResourceExhausted as error:
        print(error)
"""
"""Threads are refused by leaving no address space for their stacks, since limits of processes do not hold for root."""

SORT = """
tokens = np.append(np.random.default_rng(0).integers(0, 300, 100_000), 0xFFFF).astype(np.uint16)
parts, before = 0, used()

def at_a_part(share):
    global parts
    parts += 1
    if parts == int(sys.argv[2]):
        limit(before + (128 << 20))

expect_no_thread(lambda: _native.write_segment(sys.argv[1], tokens, 300, 64, bytes(32), b"", 256, at_a_part))
"""

MERGE = """
segment = _native.Segment(sys.argv[2])
limit(used() + (6 << 20))  # for the buffer of the file, not for a stack
expect_no_thread(lambda: _native.merge_segments(sys.argv[1], [segment], [], b"", 2, None))
"""


def output_of(program: str, *arguments: str) -> str:
    few_arenas = {**os.environ, "MALLOC_ARENA_MAX": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", LIMIT + program, *arguments], env=few_arenas, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("part", [1, 2, 3, 4, 5])
def test_a_sort_without_threads_ends_in_any_of_its_parts(tmp_path: Path, part: int) -> None:
    """A sort ends if a thread cannot be started.

    Otherwise the started threads of that part would wait forever for the missing one.
    """
    output = output_of(SORT, str(tmp_path / "a.segment"), str(part))
    assert "no further thread can be started: " in output
    assert "give fewer --threads" in output
    assert not list(tmp_path.iterdir())


def test_a_merge_without_threads_says_so(tmp_path: Path) -> None:
    """The thread of a slice is refused. The exception of the standard library must not leave the core."""
    write_segment(tmp_path / "one.segment", separated([[1, 2, 3]], 10), vocab_size=10)
    assert "give fewer --threads" in output_of(MERGE, str(tmp_path / "a.segment"), str(tmp_path / "one.segment"))
