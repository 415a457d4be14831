"""The options that all servers share, and changes of these options in a running server."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from suffolk.cli.options.setting import Options
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.settings import Within, option, rare
from suffolk.serving.net.config import ServerConfig
from suffolk.serving.net.endpoint import Endpoint, parse_endpoint
from suffolk.serving.net.logs import FORMATS, configure_logs, set_log_requests
from suffolk.serving.net.server import Server
from suffolk.serving.net.tls import TlsFiles
from suffolk.serving.net.tracing import start_tracing
from suffolk.serving.net.url import DRAFT_PORT

LOG = logging.getLogger("suffolk.server")


def listen_option(port: int) -> Any:
    """The field of the gRPC addresses; ``port``: the default."""
    help = "address of gRPC: HOST:PORT or unix:PATH; port 0 takes a free port; may be repeated"
    return option((f"127.0.0.1:{port}",), help, metavar="ENDPOINT")


def http_option(port: int, services: str) -> Any:
    """The field of the HTTP address; ``port``: the default.

    ``services``: names of the services at the address, for the help.
    """
    return option(
        f"127.0.0.1:{port}",
        f"address of {services}: HOST:PORT, or :PORT for loopback; 'off' opens no port",
        metavar="[HOST]:PORT",
    )


def switch_option(subject: str) -> Any:
    """The field of a switch for things that other machines see only if the operator allows it."""
    help = (
        f"{subject}; 'auto' is 'on', but 'off' if callers without token or certificate can reach it from other machines"
    )
    return option("auto", help, choices=("auto", "on", "off"))


def is_on(choice: str, server: ServerConfig, *endpoints: Endpoint | None) -> bool:
    """Whether a ``switch_option`` is on. ``endpoints``: where its subject can be seen; None for an endpoint that is not served."""
    if choice == "auto":
        return server.authenticates or all(each is None or each.is_private() for each in endpoints)
    return choice == "on"


@dataclass(frozen=True, kw_only=True)
class ServerOptions(Options):
    """Where and how to serve."""

    GROUP = "serving"
    listen: tuple[str, ...] = listen_option(DRAFT_PORT)
    http: str = http_option(DRAFT_PORT + 1, "HTTP/JSON and /metrics")
    tls_cert: str | None = option(None, "PEM certificate; gRPC over TCP and HTTP are then encrypted", metavar="FILE")
    tls_key: str | None = option(None, "PEM private key of --tls-cert", metavar="FILE")
    tls_client_ca: str | None = option(
        None,
        "PEM certificate of the authority that must have signed the certificates of clients (mTLS)",
        metavar="FILE",
    )
    access: Path | None = option(
        None,
        "access file with the tokens, certificates and quotas of callers; 'suffolk token add' writes it (default: every caller may "
        "do everything)",
        metavar="FILE.toml",
    )
    insecure: bool = option(
        False, "allow plaintext, and callers without token or certificate, on addresses that other machines can reach"
    )
    allowed_host: tuple[str, ...] = rare(
        (),
        "host that HTTP requests may name, beside loopback and the host of --http. Once set, the host of every request is checked; "
        "otherwise only on loopback without --access",
        metavar="HOST",
    )
    grace: Annotated[float, Within(0, 600)] = rare(
        5.0, "seconds that running requests may still take when the server stops", metavar="SECONDS"
    )

    drain: Annotated[float, Within(0, 600)] = rare(
        0.0,
        "seconds for which a stopping server still answers new requests, so that load balancers can notice",
        metavar="SECONDS",
    )
    log_format: str = rare("text", "form of the log on stderr", choices=FORMATS)
    log_requests: bool = rare(False, "log every finished request with its id, caller, status and duration")
    otlp_endpoint: str | None = rare(
        None, "OTLP endpoint (gRPC) of a collector of traces, such as http://127.0.0.1:4317", metavar="URL"
    )

    def start_logs(self, service: str) -> None:
        """Configure logs and traces. Raises Unsupported: the extra ``otel`` is not installed."""
        configure_logs(self.log_format, self.log_requests)
        if self.otlp_endpoint is not None:
            start_tracing(service, self.otlp_endpoint)

    def server_fields(self) -> dict[str, Any]:
        """The fields of a ``ServerConfig``. Raises InvalidArgument if they contradict each other."""
        if bool(self.tls_cert) != bool(self.tls_key):
            raise InvalidArgument("--tls-cert and --tls-key belong together; give both or neither")
        if self.tls_client_ca and not self.tls_cert:
            raise InvalidArgument("--tls-client-ca needs --tls-cert and --tls-key")
        tls = (
            TlsFiles(self.tls_cert, self.tls_key, self.tls_client_ca or "") if self.tls_cert and self.tls_key else None
        )
        return {
            "listen": tuple(parse_endpoint(text, "--listen") for text in self.listen),
            "http": None if self.http == "off" else parse_endpoint(_with_host(self.http), "--http", "'off'"),
            "grace": self.grace,
            "drain": self.drain,
            "tls": tls,
            "access": self.access,
            "insecure": self.insecure,
            "allowed_hosts": self.allowed_host,
        }


def _with_host(text: str) -> str:
    """Put the loopback host before :PORT. Other machines can reach a server only if its host is given."""
    return f"127.0.0.1{text}" if text.startswith(":") else text


def server_settings(server: Server) -> dict[str, Callable[[Any], None]]:
    """The settings that may change while a server runs: map from name to the function that applies a value."""
    return {"grace": server.set_grace, "drain": server.set_drain, "log_requests": set_log_requests}


class SettingsReload:
    """A function for ``Server.reloads``. It applies the settings that may change while the server runs, and logs other changes."""

    def __init__(self, options: Options, live: Mapping[str, Callable[[Any], None]]) -> None:
        """``live``: map from a setting's name to the function that applies its new value."""
        self._options = options
        self._read = options.read_again
        self._live = live

    def __call__(self) -> None:
        """Apply the settings. Raises InvalidArgument or NotFound as at the start; in this case nothing is applied."""
        if self._read is None:
            return
        latest = self._read()
        for field in dataclasses.fields(latest):
            value = getattr(latest, field.name)
            if not field.compare or value == getattr(self._options, field.name):
                continue
            if field.name in self._live:
                self._live[field.name](value)
                LOG.info("reload: %s is %s now", field.name, value)
            else:
                LOG.warning("reload: %s has changed; restart the server to apply it", field.name)
        self._options = latest
