"""TCP links between processes of this machine that can be cut and reset."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Link:
    """Forwards connections from ``port`` to another port of this machine. Thread-safe.

    Attributes:
        cut: while it is true, nothing passes, and nothing is closed.
    """

    def __init__(self, target: int) -> None:
        self.cut = False
        self._target = target
        self._ends: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self, caller: bool) -> None:
        """Close the connections at the side of the ``caller``, or at the other side, without a word to the other end."""
        for near, far in self._ends:
            with suppress(OSError):
                (near if caller else far).shutdown(socket.SHUT_RDWR)
        self._ends = []

    def close(self) -> None:
        """Accept no more connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listener.accept()
                with suppress(OSError):  # nothing listens there now
                    far = socket.create_connection(("127.0.0.1", self._target))
                    self._ends.append((near, far))
                    for ends in ((near, far), (far, near)):
                        threading.Thread(target=self._forward, args=ends, daemon=True).start()
                    continue
                near.close()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        pause = threading.Event()
        with suppress(OSError):
            while data := source.recv(1 << 16):
                while self.cut:
                    pause.wait(0.05)
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.close()
