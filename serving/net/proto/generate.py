"""Generates the Python code of the .proto files: ``python -m suffolk.serving.net.proto.generate``.

Run it after every change of a .proto file. It needs grpcio-tools and mypy-protobuf (for the stubs of the services). The output is
committed, so that installing needs no compiler.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("draft", "decode", "replication")
OUTPUTS = tuple(f"{name}_{kind}" for name in NAMES for kind in ("pb2.py", "pb2.pyi", "pb2_grpc.py", "pb2_grpc.pyi"))


_EXPERIMENTAL = re.compile(r"\n\n # This class is part of an EXPERIMENTAL API\.\n.*?(?=\n\n\nclass |\Z)", re.DOTALL)
"""The class for calls without a stub. The compiler adds one for each service. These unused classes are most of the
output."""


def generate(output: Path) -> None:
    """Write OUTPUTS to ``output``/suffolk/serving/net/proto. Raises CalledProcessError if the compiler fails."""
    bin_folder = Path(sys.executable).parent  # where pip installs the plugin of mypy-protobuf
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}"),
            *(f"--{kind}_out={output}" for kind in ("python", "pyi", "grpc_python")),
            f"--mypy_grpc_out=only_sync:{output}",
            *(f"suffolk/serving/net/proto/{name}.proto" for name in NAMES),
        ],
        cwd=ROOT,
        env=dict(os.environ, PATH=f"{bin_folder}{os.pathsep}{os.environ.get('PATH', '')}"),
        check=True,
    )
    for name in NAMES:
        file = output / "suffolk/serving/net/proto" / f"{name}_pb2_grpc.py"
        file.write_text(_EXPERIMENTAL.sub("", file.read_text()))


if __name__ == "__main__":
    generate(ROOT)
