"""Listening addresses of a server: HOST:PORT or unix:PATH."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
import stat
from dataclasses import dataclass

from suffolk.datastore.errors import Field, InvalidArgument, PermissionDenied, ResourceExhausted, SuffolkError

MAX_SOCKET_PATH = 107
"""Longest path of a unix socket on Linux, in bytes."""
_DIGITS = re.compile(r"[0-9.]+")
_HOST_NAME = re.compile(r"[\w.-]+")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A TCP address (``host`` and ``port``; port 0 picks a free one), or the ``path`` of a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def is_private(self) -> bool:
        """Whether only processes on this machine can reach it."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def hosts(self) -> tuple[str, ...]:
        """The hosts to listen on. ``localhost`` means both loopback addresses, as in gRPC, because clients resolve it to one of
        the two."""
        if self.host == "localhost" and _has_ipv6_loopback():
            return "127.0.0.1", "::1"
        return (self.host,)

    def with_port(self, port: int) -> Endpoint:
        """This endpoint with the bound port."""
        return self if self.path else Endpoint(self.host, port)


def _has_ipv6_loopback() -> bool:
    if not socket.has_ipv6:
        return False
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def parse_endpoint(text: str, field: str, other_form: str = "unix:PATH") -> Endpoint:
    """Parse HOST:PORT, [IPV6]:PORT or unix:PATH.

    Raises InvalidArgument. In its message, ``field`` is the option, and ``other_form`` is the form that the option
    takes beside HOST:PORT.
    """
    if text.startswith("unix:"):
        path = os.path.abspath(text.removeprefix("unix:"))
        if text == "unix:" or len(os.fsencode(path)) > MAX_SOCKET_PATH:
            raise InvalidArgument(
                Field(field),
                f": {text}: the path of a unix socket has 1 to {MAX_SOCKET_PATH} bytes; choose a shorter one",
            )
        return Endpoint(path=path)
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise InvalidArgument(Field(field), f": {text!r} is not HOST:PORT with a port in 0..65535, nor {other_form}")
    if not _is_host(host):
        raise InvalidArgument(
            Field(field), f": {host!r} is no address; write one such as 127.0.0.1 or [::1], or the name of a host"
        )
    return Endpoint(host, int(port))


def _is_host(text: str) -> bool:
    """Whether ``text`` can be an address or a name. Digits and dots alone are an address."""
    if ":" not in text and not _DIGITS.fullmatch(text):
        return _HOST_NAME.fullmatch(text) is not None
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def check_free(endpoint: Endpoint, field: str) -> None:
    """Raise if the endpoint cannot be bound. A unix socket that no process listens on is removed.

    This check is needed, because gRPC reports a used port only on stderr, and takes over a unix socket that another process uses.

    Raises:
        ResourceExhausted: another process listens there.
        PermissionDenied: this user may not listen there.
        InvalidArgument: this machine has no such address, or the path is not a socket.
    """
    try:
        if endpoint.path:
            _remove_stale_socket(endpoint, field)
            return
        for host in endpoint.hosts():
            found = socket.getaddrinfo(host, endpoint.port, type=socket.SOCK_STREAM)
            family, kind, protocol, _, address = found[0]
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
                probe.listen()
    except OSError as error:
        raise bind_error(endpoint, field, error) from None


def bind_error(endpoint: Endpoint, field: str, error: OSError) -> SuffolkError:
    """The error to raise for an endpoint that cannot be bound."""
    if error.errno == errno.EADDRINUSE:
        return ResourceExhausted(f"{field}: {endpoint} is in use by another process; stop it or choose another address")
    if error.errno in (errno.EACCES, errno.EPERM):
        return PermissionDenied(
            f"{field}: this user may not listen on {endpoint}; choose a port above 1023 or another folder"
        )
    return InvalidArgument(
        Field(field), f": cannot listen on {endpoint}: {error.strerror or error}; choose another address"
    )


def _remove_stale_socket(endpoint: Endpoint, field: str) -> None:
    try:
        mode = os.stat(endpoint.path).st_mode
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(endpoint.path)):
            raise
        return
    if not stat.S_ISSOCK(mode):
        raise InvalidArgument(
            Field(field), f": {endpoint.path} exists and is not a socket; remove it or choose another path"
        )
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(endpoint.path)
        except ConnectionRefusedError:
            os.unlink(endpoint.path)  # left behind by a killed server
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
