"""A real S3 server in a process of its own, and a TCP proxy before it that cuts or holds connections."""

from __future__ import annotations

import re
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.request import Request, urlopen

from tests.support.waiting import HANG

SHORT_TIMEOUTS = '{"config_kwargs": {"read_timeout": 1, "retries": {"total_max_attempts": 3}}}'
"""Settings of s3fs with which it notices a cut connection soon."""


_PROGRAM = """
from werkzeug.serving import WSGIRequestHandler
WSGIRequestHandler.handle_expect_100 = lambda self: True  # else werkzeug answers twice, and aiohttp may wait for ever
from moto.server import main
main(["-H", "127.0.0.1", "-p", "0"])
"""


class Proxy:
    """Forwards TCP connections to ``port``. Thread-safe.

    Attributes:
        port: where it listens on 127.0.0.1.
        bytes: number of bytes forwarded so far, in both directions.
        cuts: number of connections that it has cut.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self.bytes = self.cuts = 0
        self._cut_at: list[int] = []
        self._refuse_at: int | None = None
        self._hold_at: int | None = None
        self._change = threading.Condition()
        self._listen()

    def cut_after(self, *sizes: int) -> None:
        """Cut a connection when ``sizes[0]`` further bytes have passed, another one after ``sizes[1]`` more, and so on."""
        with self._change:
            self._cut_at = [self.bytes + sum(sizes[: number + 1]) for number in range(len(sizes))]

    def refuse_after(self, size: int) -> None:
        """Cut every connection when ``size`` further bytes have passed, and refuse new ones."""
        with self._change:
            self._refuse_at = self.bytes + size
            self._close_if_refused()

    def hold_after(self, size: int) -> None:
        """Forward ``size`` further bytes, and then nothing."""
        with self._change:
            self._hold_at = self.bytes + size

    def wait_until_held(self) -> None:
        with self._change:
            assert self._change.wait_for(lambda: self._hold_at is not None and self.bytes >= self._hold_at, HANG)

    def heal(self) -> None:
        """Forward everything again."""
        with self._change:
            if not self._listens:
                self._listen()
            self._cut_at, self._refuse_at, self._hold_at = [], None, None
            self._change.notify_all()

    def close(self) -> None:
        if self._listens:
            self._listens = False
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._listener.close()

    def _listen(self) -> None:
        self._listens = True
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self._is_cut(len(data)):
                    target.sendall(data[: len(data) // 2])
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _is_cut(self, size: int) -> bool:
        with self._change:
            self.bytes += size
            if self._close_if_refused():
                return True
            self._change.notify_all()
            self._change.wait_for(lambda: self._hold_at is None or self.bytes < self._hold_at)
            if not self._cut_at or self.bytes < self._cut_at[0]:
                return False
            self._cut_at.pop(0)
            self.cuts += 1
            return True

    def _close_if_refused(self) -> bool:
        refused = self._refuse_at is not None and self.bytes >= self._refuse_at
        if refused:
            self.close()
        return refused


class S3Server:
    """A running server.

    Attributes:
        address: its own URL.
        proxy: the proxy, which clients use.
    """

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.proxy = Proxy(port)

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which clients find the proxy."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.proxy.port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "FSSPEC_S3": SHORT_TIMEOUTS,
        }

    def make_bucket(self) -> str:
        """The URL of a new bucket."""
        name = f"bucket-{secrets.token_hex(4)}"
        urlopen(Request(f"{self.address}/{name}", method="PUT"), timeout=HANG).close()
        return f"s3://{name}"

    @contextmanager
    def checking_credentials(self) -> Iterator[None]:
        """Let the server refuse unknown access keys. It accepts all otherwise."""
        self._check_credentials_after("0")
        try:
            yield
        finally:
            self._check_credentials_after("inf")

    def _check_credentials_after(self, actions: str) -> None:
        kind = {"Content-Type": "text/plain"}
        urlopen(Request(f"{self.address}/moto-api/reset-auth", actions.encode(), kind), timeout=HANG).close()


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Start the server on a free loopback port, without any bucket."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        found = next(filter(None, (re.search(r"http://127\.0\.0\.1:(\d+)", line) for line in process.stderr)))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        server = S3Server(int(found[1]))
        yield server
        server.proxy.close()
    finally:
        process.kill()
        process.wait(HANG)
