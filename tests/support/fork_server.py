"""Runs the ``suffolk`` command in forked children. One start of Python, with its imports, serves hundreds of commands.

``python -m tests.support.fork_server`` reads requests and writes answers, one JSON line each; use ``ForkServer``. It is
a separate process, since a process that has run threads cannot fork safely.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

from tests.support.processes import ROOT

QUIET = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONPATH": str(ROOT),
}
HANG = 120
"""A command that is run to its end and takes so many seconds is ended by SIGALRM."""
STARTED: set[int] = set()
"""Ids of the children that run beside others. They end with the server."""


@dataclass(frozen=True)
class Ending:
    """The end of a command: its exit code (-9: killed), stdout, stderr, and the fail points that it reached."""

    code: int
    seconds: float
    output: str
    errors: str
    reached: dict[str, int]


class ForkServer:
    """A context manager that runs commands. ``modules`` are imported before any fork."""

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._asking = threading.Lock()

    def __enter__(self) -> ForkServer:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server", *self._modules],
            cwd=ROOT,
            env=os.environ | QUIET,
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
        request = {"arguments": list(arguments), "failpoint": failpoint, "kill_after": kill_after, "function": function}
        return Ending(**self.ask("run", request))

    def ask(self, action: str, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to a function of ACTIONS, and return its answer. Thread-safe."""
        request |= {"action": action, "environment": dict(os.environ) | QUIET}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._asking:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            found: dict[str, Any] = json.loads(self._process.stdout.readline())
            return found


def serve() -> None:
    gc.disable()
    import suffolk.cli.build  # noqa: F401
    import suffolk.cli.delete  # noqa: F401
    import suffolk.cli.main
    import suffolk.datastore.failpoints  # noqa: F401 - imported here, before any fork

    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.freeze()  # else each command walks through all that was imported when it ends
    gc.enable()
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(ACTIONS[request["action"]](request)), flush=True)
    for child in STARTED:
        os.kill(child, signal.SIGKILL)


def run(request: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as points:
        begin = time.monotonic()
        child = os.fork()
        if child == 0:
            signal.alarm(HANG)
            run_and_exit(request, os.dup(output.fileno()), os.dup(errors.fileno()), points.fileno())
        if request["kill_after"] is not None:
            time.sleep(request["kill_after"])
            os.kill(child, signal.SIGKILL)  # an ended child is a zombie until it is reaped, so its pid is still valid
        _, status = os.waitpid(child, 0)
        for file in (output, errors, points):
            file.seek(0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "seconds": time.monotonic() - begin,
            "output": output.read().decode("utf-8", "surrogateescape"),
            "errors": errors.read().decode("utf-8", "surrogateescape"),
            "reached": json.loads(points.read() or b"{}"),
        }


def start(request: dict[str, Any]) -> dict[str, Any]:
    child = os.fork()
    if child == 0:
        output, errors = (os.open(request[name], os.O_WRONLY) for name in ("output", "errors"))
        run_and_exit(request, output, errors)
    STARTED.add(child)
    return {"pid": child}


def poll(request: dict[str, Any]) -> dict[str, Any]:
    child, status = os.waitpid(request["pid"], os.WNOHANG)
    STARTED.discard(child)
    return {"code": os.waitstatus_to_exitcode(status) if child else None}


ACTIONS = {"run": run, "start": start, "poll": poll}


def run_and_exit(request: dict[str, Any], output: int, errors: int, points: int | None = None) -> None:
    from suffolk.datastore.failpoints import FAILPOINT_VARIABLE, reached

    for number, file in enumerate((os.open(os.devnull, os.O_RDWR), output, errors)):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = ["-c", *request["arguments"]]
    if request.get("failpoint") is not None:
        os.environ[FAILPOINT_VARIABLE] = request["failpoint"]
    module, _, name = request["function"].partition(":")
    try:
        code = getattr(importlib.import_module(module), name)(request["arguments"])
    except SystemExit as ended:  # the parser of arguments, after help or an error
        code = ended.code
    if points is not None:
        os.write(points, json.dumps(reached).encode())
    end(code)


def end(code: int | str | None) -> NoReturn:
    """End as a command does. If no thread is left that can disturb the end, nothing is freed, which takes 0.3 s after torch."""
    if not isinstance(code, int) or len(os.listdir("/proc/self/task")) > 1:
        sys.exit(code)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
