"""A port that passes connections on to a server, and that can be closed as if the server's process had died."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Thread


class Relay:
    """Passes connections to ``address`` on to a server. Open it again after ``close``: the address stays the same."""

    def __init__(self, server: str) -> None:
        """``server``: HOST:PORT."""
        host, port = server.split(":")
        self._server, self._port = (host, int(port)), 0
        self._sockets: list[socket.socket] = []
        self.open()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def open(self) -> None:
        listener = socket.create_server(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self._sockets = [listener]
        Thread(target=self._accept, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """End all connections, and refuse new ones."""
        for each in self._sockets:
            with suppress(OSError):  # it has ended
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # ``close``
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                for source, sink in ((client, server), (server, client)):
                    Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):  # one of them has ended
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
