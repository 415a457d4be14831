"""A command that runs in a fork, with the part of ``subprocess.Popen`` that tests use."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.fork_server import ForkServer
from tests.support.waiting import until


class ForkedProcess:
    """``suffolk ARGUMENTS``, started by ``server``."""

    def __init__(self, server: ForkServer, arguments: Sequence[str], function: str = "suffolk.cli.main:main") -> None:
        self._server = server
        self.returncode: int | None = None
        with tempfile.TemporaryDirectory() as folder:
            pipes = {name: Path(folder, name) for name in ("output", "errors")}
            for path in pipes.values():
                os.mkfifo(path)
            request = {"arguments": list(arguments), "function": function}
            self.pid = int(server.ask("start", request | {name: str(path) for name, path in pipes.items()})["pid"])
            self.stdout, self.stderr = (path.open(errors="surrogateescape", newline="") for path in pipes.values())

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.ask("poll", {"pid": self.pid})["code"]
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until(lambda: self.poll() is not None)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        with ThreadPoolExecutor(1) as pool:
            errors = pool.submit(self.stderr.read)
            output = self.stdout.read()
        self.wait()
        return output, errors.result()

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
