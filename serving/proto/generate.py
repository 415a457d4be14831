"""Generates the Python code of draft.proto and its type stubs.

Run it after every change of draft.proto: python -m serving.proto.generate. Needs grpcio-tools and
mypy-protobuf. The generated files are committed, so that installing needs no compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTO = "serving/proto/draft.proto"
OUTPUTS = ("draft_pb2.py", "draft_pb2.pyi", "draft_pb2_grpc.py", "draft_pb2_grpc.pyi")


def generate(output: Path) -> None:
    """Write OUTPUTS to ``output``/serving/proto, compiled so that they import as serving.proto."""
    kinds = ("python", "grpc_python", "mypy", "mypy_grpc")
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}", *(f"--{kind}_out={output}" for kind in kinds), PROTO],
        cwd=ROOT,
        env=environment,
        check=True,
    )


if __name__ == "__main__":
    generate(ROOT)
