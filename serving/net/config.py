"""Network settings of a server, checked before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.net.access_file import read_access_file
from suffolk.serving.net.endpoint import Endpoint, check_free
from suffolk.serving.net.host_rules import HostRules, check_hosts
from suffolk.serving.net.tls import TlsFiles, check_files


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
    grace: float = 5.0
    drain: float = 0.0
    tls: TlsFiles | None = None
    access: Path | None = None
    insecure: bool = False
    allowed_hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.listen:
            raise InvalidArgument("--listen: no endpoint; give HOST:PORT or unix:PATH")
        if not 0 <= self.grace <= 600:
            raise InvalidArgument(Field("grace"), f" is {self.grace}; it must be in 0..600 seconds")
        if not 0 <= self.drain <= 600:
            raise InvalidArgument(Field("drain"), f" is {self.drain}; it must be in 0..600 seconds")
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

    def host_rules(self, origins: Sequence[str] = ()) -> HostRules:
        """Which requests of browsers are answered over HTTP. ``origins``: those of pages that may read answers; "*" for all."""
        http = self.http or Endpoint()
        takes_certificates = bool(self.tls and self.tls.ca)  # a browser sends its certificate for every page
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
