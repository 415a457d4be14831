"""Generates the Python code of the .proto files and its type stubs.

Run it after every change of one of them: python -m suffolk.serving.proto.generate. Needs grpcio-tools and
mypy-protobuf. The generated files are committed, so that installing needs no compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("draft", "decode")
OUTPUTS = tuple(f"{name}_{kind}" for name in NAMES for kind in ("pb2.py", "pb2.pyi", "pb2_grpc.py", "pb2_grpc.pyi"))


def generate(output: Path) -> None:
    """Write OUTPUTS to ``output``/suffolk/serving/proto, compiled so that they import as suffolk.serving.proto."""
    kinds = ("python", "grpc_python", "mypy", "mypy_grpc")
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    outputs = (f"--{kind}_out={output}" for kind in kinds)
    sources = (f"suffolk/serving/proto/{name}.proto" for name in NAMES)
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}", *outputs, *sources],
        cwd=ROOT,
        env=environment,
        check=True,
    )


if __name__ == "__main__":
    generate(ROOT)
