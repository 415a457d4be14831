"""Runs a draft service in its own process during a measurement."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from suffolk.datastore.errors import Unavailable

ANNOUNCEMENT = re.compile(r"on grpc (\S+?),? ?(?:http \S+)?$")


@contextlib.contextmanager
def served(store: Path, command: Sequence[str] = ()) -> Iterator[str]:
    """Start ``suffolk serve`` for ``store`` on a free local port, and yield its URL. The server stops with the block.

    Arguments and errors as for ``serving``.
    """
    with serving(store, command) as (url, _):
        yield url


@contextlib.contextmanager
def serving(store: Path, command: Sequence[str] = ()) -> Iterator[tuple[str, int]]:
    """As ``served``, but yield the URL and the id of the server's process.

    Args:
        command: command of another server that prints the same line when it is ready.

    Raises:
        Unavailable: the server does not start.
    """
    serve = [sys.executable, "-m", "suffolk", "serve", f"store={store}", "--listen", "127.0.0.1:0", "--http", "off"]
    with tempfile.TemporaryFile("w+") as errors:  # an unread pipe could block the server
        server = subprocess.Popen([*command] or serve, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert server.stdout is not None
            line = server.stdout.readline().strip()
            found = ANNOUNCEMENT.search(line)
            if found is None:
                stop_server(server)  # the server may still run
                errors.seek(0)
                output = f"{line}\n{errors.read()}".strip()[-300:]
                raise Unavailable(f"the draft service of {store} did not start: {output or 'it printed nothing'}")
            yield f"grpc://{found.group(1)}/store", server.pid
        finally:
            stop_server(server)


def stop_server(server: subprocess.Popen[str]) -> None:
    """End a server by SIGTERM, or by SIGKILL if that takes longer than 15 s."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=15)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
