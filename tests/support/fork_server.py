"""Runs the ``suffolk`` command in forked children that tests kill. One start of Python serves hundreds of kills.

``python -m tests.support.fork_server`` reads requests and writes answers, one JSON line each; use ``ForkServer``. It is
a separate process, since a process that has run threads cannot fork safely.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests.support.building import ROOT


@dataclass(frozen=True)
class Ending:
    """The end of a command: its exit code (-9: killed), its stderr, and the fail points that it reached."""

    code: int
    seconds: float
    errors: str
    reached: dict[str, int]


class ForkServer:
    """A context manager that runs one command at a time. ``modules`` are imported before any fork."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules

    def __enter__(self) -> ForkServer:
        quiet = {
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONPATH": str(ROOT),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server", *self._modules],
            cwd=ROOT,
            env={**os.environ, **quiet},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=60)

    def run(
        self,
        arguments: Sequence[str],
        *,
        failpoint: str | None = None,
        kill_after: float | None = None,
        function: str = "suffolk.cli.main:main",
    ) -> Ending:
        """Run ``suffolk ARGUMENTS``, and kill it at a fail point (``NAME@N``) or after a time, unless it ends first.

        ``function``: what takes the arguments instead, as ``MODULE:NAME``; it returns the exit code.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"arguments": list(arguments), "failpoint": failpoint, "kill_after": kill_after, "function": function}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Ending(**json.loads(self._process.stdout.readline()))


def serve() -> None:
    import suffolk.cli.build  # noqa: F401
    import suffolk.cli.delete  # noqa: F401
    import suffolk.cli.main
    import suffolk.datastore.failpoints  # noqa: F401 - imported here, before any fork

    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as points:
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            run_and_exit(request, errors.fileno(), points.fileno())
        if request["kill_after"] is not None:
            time.sleep(request["kill_after"])
            os.kill(child, signal.SIGKILL)  # an ended child is a zombie until it is reaped, so its pid is still valid
        _, status = os.waitpid(child, 0)
        seconds = time.monotonic() - begin
        errors.seek(0)
        points.seek(0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "seconds": seconds,
            "errors": errors.read().decode("utf-8", "replace"),
            "reached": json.loads(points.read() or b"{}"),
        }


def run_and_exit(request: dict[str, Any], errors: int, points: int) -> None:
    from suffolk.datastore.failpoints import FAILPOINT_VARIABLE, reached

    code = 70
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(0, 1)
        os.dup2(errors, 2)
        if request["failpoint"] is not None:
            os.environ[FAILPOINT_VARIABLE] = request["failpoint"]
        module, _, name = request["function"].partition(":")
        code = getattr(importlib.import_module(module), name)(request["arguments"])
        os.write(points, json.dumps(reached).encode())
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
