"""Builds and runs the C++ core's own tests, and the saved inputs of its fuzz targets, without Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(600)
def test_the_core_and_what_fuzzing_found() -> None:
    tools = Path(sys.executable).parent
    cmake = shutil.which("cmake", path=f"{tools}:{os.environ['PATH']}")
    ctest = shutil.which("ctest", path=f"{tools}:{os.environ['PATH']}")
    assert cmake is not None, "cmake is missing; pip install '.[dev]'"
    assert ctest is not None
    build = HOME / "build" / "core"
    unity = ("-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_UNITY_BUILD_BATCH_SIZE=0")
    fast_to_build = ("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1", *unity)
    kinds = (*fast_to_build, "-DSUFFOLK_PYTHON=OFF", "-DSUFFOLK_DEVELOPER=ON")
    run(cmake, "-S", str(HOME), "-B", str(build), *kinds)
    run(cmake, "--build", str(build), "--parallel", str(os.cpu_count()))
    report = run(ctest, "--test-dir", str(build), "--output-on-failure")
    for name in ("core_test", "live_test", "fuzz_reader", "fuzz_queries"):
        assert name in report
    assert "100% tests passed" in report


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout
