"""Runs a draft service on a fixed port that can be killed and restarted."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from suffolk.benchmarks.service.draft_server import stop_server
from suffolk.benchmarks.service.measure import cpu_seconds
from suffolk.datastore.errors import Unavailable


class DraftProcess:
    """A process of ``suffolk serve`` for ``stores`` on a free local port. Not thread-safe."""

    def __init__(self, stores: Mapping[str, Path]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._address = f"127.0.0.1:{free.getsockname()[1]}"
        self._stores = dict(stores)
        self._process: subprocess.Popen[str] | None = None

    @property
    def urls(self) -> list[str]:
        """The URLs, one for each datastore."""
        return [f"grpc://{self._address}/{name}" for name in self._stores]

    def start(self) -> None:
        """Start the service. Raises Unavailable if that fails."""
        command = [sys.executable, "-m", "suffolk", "serve", *(f"{name}={path}" for name, path in self._stores.items())]
        self._process = subprocess.Popen(
            [*command, "--listen", self._address, "--http", "off"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        if "on grpc" not in self._process.stdout.readline():
            raise Unavailable(f"the draft service at {self._address} did not start; see its messages above")

    def kill(self) -> None:
        """Kill the service."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def cpu_seconds(self) -> float:
        """Processor time of the running service so far."""
        return cpu_seconds(self._process.pid) if self._process else 0.0

    def close(self) -> None:
        """Stop the service."""
        if self._process is not None:
            stop_server(self._process)
