"""One server, ``suffolk serve`` or ``suffolk worker``, as a child of this process."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import DeadlineExceeded, Unavailable

_ENDPOINT = re.compile(r"\b(grpc|http)s? (\S+?)(?:,|$)")
_TETHERED = "suffolk.serving.cluster.tethered"
_STDERR_LINES = 20
_LAST_SECONDS = 10.0
"""Seconds that a server gets to end after its grace, before it is killed."""


@dataclass(frozen=True)
class ServerAddress:
    """Where a server listens, as HOST:PORT, and the id of its process."""

    grpc: str
    http: str
    pid: int


class ServerProcess:
    """A running server. Its stderr goes to ``log``. It ends at the latest when this process ends.

    ``stop`` and ``wait`` may run in different threads.
    """

    def __init__(self, words: Sequence[str], log: Path) -> None:
        """Start ``suffolk WORDS``. Raises OSError: the log cannot be written."""
        self._log = log.open("ab", buffering=0)
        self._last: deque[str] = deque(maxlen=_STDERR_LINES)
        self._process = subprocess.Popen(
            [sys.executable, "-m", _TETHERED, "suffolk", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._copying = threading.Thread(target=self._copy_log, name="log", daemon=True)
        self._copying.start()

    def wait_ready(self, seconds: float) -> ServerAddress:
        """Wait until the server takes requests.

        Raises:
            Unavailable: it has ended; the message holds its error.
            DeadlineExceeded: it has not started within ``seconds``. It is killed.
        """
        assert self._process.stdout is not None
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        line = self._process.stdout.readline().decode().strip()
        late = timer.finished.is_set()
        timer.cancel()
        if late:
            raise DeadlineExceeded(f"not started within {seconds:g} s, its start_seconds; see its log")
        if not line.startswith("serving "):
            raise Unavailable(self.wait())
        found = {kind: address for kind, address in _ENDPOINT.findall(line) if not address.startswith("unix:")}
        return ServerAddress(found["grpc"], found["http"], self._process.pid)

    def wait(self, seconds: float | None = None) -> str:
        """Wait until the server ends; returns why, in one line: its last error, or its exit code.

        Returns an empty text if it still runs after ``seconds``.
        """
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return ""
        self._copying.join()
        if code < 0:
            return f"ended by {signal.Signals(-code).name}"
        errors = [line for line in self._last if line.startswith("suffolk: ")]
        return errors[-1].removeprefix("suffolk: ") if code and errors else f"ended with exit code {code}"

    def stop(self, grace: float) -> None:
        """Let running requests finish, for at most ``grace`` seconds and a few more, and end the server."""
        self._process.terminate()
        try:
            self._process.wait(grace + _LAST_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _copy_log(self) -> None:
        assert self._process.stderr is not None
        with self._log:
            for line in self._process.stderr:
                self._last.append(line.decode(errors="replace").strip())
                with suppress(OSError):  # a full disk must not stop the server, which waits until its lines are read
                    self._log.write(line)
