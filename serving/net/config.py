"""Network settings of a server, checked before the server starts, and rules for requests of browsers."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.datastore.settings import Within, check_fields
from suffolk.serving.net.access_file import read_access_file
from suffolk.serving.net.endpoint import Endpoint, check_free
from suffolk.serving.net.tls import TlsFiles, check_files

_NAME = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
_HOST = re.compile(r"(?P<name>[^\[\]:/@]+|\[[^\[\]/@]+\])(:[0-9]+)?")
"""The header Host: a name or an address, and a port."""


@dataclass(frozen=True, slots=True)
class HostRules:
    """Which requests of browsers are answered. A host is allowed if it is a loopback name or address, or in ``hosts``.

    Attributes:
        hosts: further allowed hosts, in lower case and without brackets.
        checks_host: whether the host of every request must be allowed.
        checks_origin: whether requests of other web pages are refused. A page is allowed if its host is allowed, if it is from
            the request's own host, or if its origin is in ``origins``.
        origins: origins of pages; "*" for all; None if the server has no setting ``cors_origin``.
    """

    hosts: Collection[str]
    checks_host: bool
    checks_origin: bool
    origins: Sequence[str] | None = None

    def refusal(self, host: str | None, origin: str | None) -> str | None:
        """Why a request with these headers is refused; None if it is answered. A request of HTTP/1.0 may have no host,
        as in HAProxy's health checks. Browsers always send a host."""
        if self.checks_host and host is not None and not self._allows(host):
            return f"host {host[:256]!r} is not this server's; call it by a loopback address, or name the host in allowed_host"
        if not self.checks_origin or origin is None or {"*", origin} & set(self.origins or ()):
            return None
        page = origin.partition("://")[2]
        if page and (page.lower() == (host or "").lower() or self._allows(page)):
            return None
        if not page:
            advice = "open the page from a web server, as a file has no host"
        elif self.origins is None:
            advice = "name the page's host in allowed_host"
        else:
            advice = "name the origin in cors_origin"
        return f"origin {origin[:256]!r}: pages of other hosts may not call this server; {advice}"

    def _allows(self, host: str) -> bool:
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        name = found["name"].strip("[]")
        return name in self.hosts or Endpoint(name).is_private()


def check_hosts(hosts: Sequence[str]) -> None:
    """Raises InvalidArgument for a text that is not a host alone."""
    for index, host in enumerate(hosts):
        if not _NAME.fullmatch(host):
            raise InvalidArgument(
                Field("allowed_host"),
                f"[{index}] is {host!r}; write a name or an address in lower case, without scheme or port",
            )


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Network settings of a server.

    Attributes:
        listen: gRPC endpoints, at least one.
        http: HTTP endpoint, or None.
        grace: seconds for calls in flight to finish when the server stops, 0..600.
        drain: seconds for which a stopping server still answers new calls, while its health is NOT_SERVING, 0..600.
        tls: encrypts gRPC over TCP, and HTTP. Unix sockets are protected by their mode, 0600.
        access: access file with tokens and subjects of certificates; None: every caller may do everything.
        insecure: permits plaintext, and calls without a token or certificate, on addresses that other machines can reach.
        allowed_hosts: hosts that requests over HTTP may name, beside loopback and the host of ``http``. If there are any, the
            host of every request is checked.
    """

    listen: tuple[Endpoint, ...]
    http: Endpoint | None = None
    grace: Annotated[float, Within(0, 600)] = 5.0
    drain: Annotated[float, Within(0, 600)] = 0.0
    tls: TlsFiles | None = None
    access: Path | None = None
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.listen:
            raise InvalidArgument("--listen: no endpoint; give HOST:PORT or unix:PATH")
        check_fields(self)
        if self.http is not None and self.http.path:
            raise InvalidArgument(f"--http: {self.http} is a unix socket; give HOST:PORT")
        check_hosts(self.allowed_hosts)
        taken: list[Endpoint] = []
        for field, endpoint in self._endpoints():
            if endpoint in taken and (endpoint.port or endpoint.path):
                raise InvalidArgument(
                    Field(field), f": {endpoint} is already given to --listen; choose another address"
                )
            taken.append(endpoint)
            if self.tls is None and not (endpoint.is_private() or self.insecure):
                raise InvalidArgument(
                    Field(field),
                    f": {endpoint} would expose plaintext to other machines; give --tls-cert and --tls-key, or --insecure",
                )
            if not (self.authenticates or endpoint.is_private() or self.insecure):
                raise InvalidArgument(
                    Field(field),
                    f": {endpoint} would answer every machine that can reach it; give --access with tokens, "
                    "--tls-client-ca, or --insecure",
                )

    @property
    def authenticates(self) -> bool:
        """Whether callers need a token or a certificate."""
        return self.access is not None or bool(self.tls and self.tls.ca)

    def host_rules(self, origins: Sequence[str] | None = None) -> HostRules:
        """The rules for requests of browsers over HTTP. ``origins``: as in ``HostRules``."""
        http = self.http or Endpoint()
        takes_certificates = bool(self.tls and self.tls.ca)  # a browser sends its certificate with requests of any page
        return HostRules(
            (*self.allowed_hosts, http.host),
            checks_host=bool(self.allowed_hosts) or (http.is_private() and not self.authenticates),
            checks_origin=self.access is None or takes_certificates,
            origins=origins,
        )

    def check(self) -> None:
        """Raise the errors of ``Server.start`` early. Servers that load a model call ``check`` first."""
        if self.tls is not None:
            check_files(self.tls)
        if self.access is not None:
            read_access_file(self.access)
        for field, endpoint in self._endpoints():
            check_free(endpoint, field)

    def _endpoints(self) -> list[tuple[str, Endpoint]]:
        """All endpoints, each with its option."""
        http = [] if self.http is None else [("--http", self.http)]
        return [*(("--listen", endpoint) for endpoint in self.listen), *http]
