"""Runs servers of ``suffolk`` in processes of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SUFFOLK = (sys.executable, "-c", "import sys; from suffolk.cli.main import main; sys.exit(main())")
ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
WAIT = 120
"""Timeout in seconds. Only a hang takes longer."""


@dataclass
class Running:
    """A server's process, and the line that it printed when it started."""

    process: subprocess.Popen[str]
    line: str

    def endpoint(self, kind: str = "grpc") -> str:
        found = re.search(rf"\b{kind} (\S+?)(?:,|$)", self.line)
        assert found, self.line
        return found[1]

    def stop(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal to the server; return its exit code and its stderr."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=WAIT)
        return self.process.returncode, errors


@contextmanager
def running(*words: str, command: tuple[str, ...] = SUFFOLK, **variables: str) -> Iterator[Running]:
    """Start a server, and yield it when it serves. It is killed at the end if it still runs.

    ``variables``: further variables of its environment.
    """
    process = subprocess.Popen(
        [*command, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT | variables,
    )
    with serving(process) as server:
        yield server


@contextmanager
def serving(process: subprocess.Popen[str]) -> Iterator[Running]:
    """A started server when it serves. It is killed at the end if it still runs."""
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line.startswith("serving "), process.communicate(timeout=WAIT)[1]
        yield Running(process, line)
    finally:
        process.kill()
        process.communicate(timeout=WAIT)
