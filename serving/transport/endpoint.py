"""Where a server listens: HOST:PORT or unix:PATH, parsed, judged, and checked to be free before anything binds."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import stat
from dataclasses import dataclass

from suffolk.datastore.errors import InvalidArgument, PermissionDenied, ResourceExhausted, SuffolkError

MAX_SOCKET_PATH = 107
"""Bytes of a unix socket's path that Linux takes."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A TCP address (``host``, ``port``; port 0 picks a free one) or, with an empty host, a unix socket's ``path``."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def is_private(self) -> bool:
        """Whether only this machine can reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def at(self, port: int) -> Endpoint:
        """This endpoint with the port that was really taken."""
        return self if self.path else Endpoint(self.host, port)


def parse_endpoint(text: str, field: str) -> Endpoint:
    """HOST:PORT, [IPV6]:PORT or unix:PATH; InvalidArgument for anything else."""
    if text.startswith("unix:"):
        path = os.path.abspath(text.removeprefix("unix:"))
        if text == "unix:" or len(os.fsencode(path)) > MAX_SOCKET_PATH:
            raise InvalidArgument(
                f"{field}: {text}: the path of a unix socket has 1 to {MAX_SOCKET_PATH} bytes; choose a shorter one"
            )
        return Endpoint(path=path)
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidArgument(f"{field}: {text!r} is not HOST:PORT with a port in 0..65535, nor unix:PATH")
    return Endpoint(host, int(port))


def check_free(endpoint: Endpoint, field: str) -> None:
    """Raise if the endpoint cannot be bound.

    Tried with a socket of our own, because gRPC answers a port in use with lines on stderr and takes a unix socket away
    from the server that listens on it. A socket file that nobody listens on is removed.

    Raises:
        ResourceExhausted: another process listens there.
        PermissionDenied: this user may not listen there.
        InvalidArgument: no such address on this machine, or the path is not a socket.
    """
    try:
        if endpoint.path:
            _clear_socket(endpoint, field)
            return
        family, kind, protocol, _, address = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)[
            0
        ]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        raise bind_error(endpoint, field, error) from None


def bind_error(endpoint: Endpoint, field: str, error: OSError) -> SuffolkError:
    """What went wrong when binding, in one line."""
    if error.errno == errno.EADDRINUSE:
        return ResourceExhausted(f"{field}: {endpoint} is in use by another process; stop it or choose another address")
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionDenied(
            f"{field}: this user may not listen on {endpoint}; choose a port above 1023 or another folder"
        )
    return InvalidArgument(f"{field}: cannot listen on {endpoint}: {error.strerror or error}; choose another address")


def _clear_socket(endpoint: Endpoint, field: str) -> None:
    try:
        mode = os.stat(endpoint.path).st_mode
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(endpoint.path)):
            raise
        return
    if not stat.S_ISSOCK(mode):
        raise InvalidArgument(f"{field}: {endpoint.path} exists and is not a socket; remove it or choose another path")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(endpoint.path)
        except ConnectionRefusedError:
            os.unlink(endpoint.path)  # left behind by a server that was killed
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
