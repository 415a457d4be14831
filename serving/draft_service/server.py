"""One draft server: gRPC on any number of endpoints, HTTP on one, all on the same datastores."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health

from datastore.errors import InvalidArgument, Unavailable
from datastore.retriever import Retriever
from serving.draft_service.endpoint import Endpoint, bind_error, check_free
from serving.draft_service.grpc_server import build_server
from serving.draft_service.http_server import HttpServer
from serving.draft_service.service import Service
from serving.draft_service.tls import TlsFiles, server_credentials

LOG = logging.getLogger("suffolk.draft_service")


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """How a server serves.

    Attributes:
        listen: where gRPC listens, at least one endpoint.
        http: where HTTP listens, or None; never encrypted.
        max_concurrent: requests worked on at a time, 1..1024; more are refused. At 2,000 requests per second each one
            more in flight costs half a millisecond, so the default keeps the last within a decoding step's deadline.
        grace: seconds that a stopping server gives to requests in flight, 0..600.
        tls: encrypts gRPC over TCP; a unix socket is guarded by its mode, 0600.
        insecure: permits plaintext on an address that other machines can reach.
    """

    listen: tuple[Endpoint, ...]
    http: Endpoint | None = None
    max_concurrent: int = 32
    grace: float = 5.0
    tls: TlsFiles | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        if not self.listen:
            raise InvalidArgument("--listen: no endpoint; give HOST:PORT or unix:PATH")
        if not 1 <= self.max_concurrent <= 1024:
            raise InvalidArgument(f"--max-concurrent is {self.max_concurrent}; it must be in 1..1024")
        if not 0 <= self.grace <= 600:
            raise InvalidArgument(f"--grace is {self.grace}; it must be in 0..600 seconds")
        if self.http is not None and self.http.path:
            raise InvalidArgument(f"--http: {self.http} is a unix socket; give HOST:PORT")
        plain = [] if self.tls else [("--listen", endpoint) for endpoint in self.listen]
        for field, endpoint in [*plain, *([("--http", self.http)] if self.http else [])]:
            if not endpoint.is_private() and not self.insecure:
                remedy = "give --insecure" if field == "--http" else "give --tls-cert and --tls-key, or --insecure"
                raise InvalidArgument(f"{field}: {endpoint} would be plaintext for other machines; {remedy}")


class DraftServer:
    """Serves ``datastores``, which it does not own: close them after ``stop``. A context manager; starts once.

    Attributes:
        listening: the gRPC endpoints with their real ports; http: the HTTP endpoint or None; both after ``start``.
        service: what answers, with its metrics.
    """

    def __init__(self, config: ServerConfig, datastores: Mapping[str, Retriever]) -> None:
        if not datastores:
            raise InvalidArgument("no datastore to serve; name at least one")
        self.config = config
        self.names = sorted(datastores)
        self.service = Service(datastores, config.max_concurrent)
        self.listening: tuple[Endpoint, ...] = ()
        self.http: Endpoint | None = None
        self._grpc: grpc.Server | None = None
        self._health: health.HealthServicer | None = None
        self._http: HttpServer | None = None
        self._stopping = threading.Lock()

    def start(self) -> None:
        """Bind and serve, or raise: ResourceExhausted for an address in use, PermissionDenied, InvalidArgument."""
        credentials = server_credentials(self.config.tls) if self.config.tls else None
        self._http = self._open_http()
        try:
            self._grpc, self._health = build_server(self.service)
            self.listening = tuple(_bind(self._grpc, endpoint, credentials) for endpoint in self.config.listen)
        except BaseException:
            if self._http is not None:
                self._http.server_close()
            raise
        self._grpc.start()
        if self._http is not None:
            threading.Thread(target=self._http.serve_forever, args=(0.05,), name="http", daemon=True).start()
            self._http.ready.set()
        for endpoint in [*(() if credentials else self.listening), *([self.http] if self.http else [])]:
            if not endpoint.is_private():
                LOG.warning("plaintext on %s: anyone who can reach it reads the drafts", endpoint)

    def stop(self) -> None:
        """Turn not ready, take no more calls, give those in flight their grace, cancel the rest; returns when down.

        Any thread may call it, and more than once.
        """
        with self._stopping:
            if self._http is not None:
                self._http.ready.clear()
            if self._grpc is not None and self._health is not None:
                self._health.enter_graceful_shutdown()
                self._grpc.stop(self.config.grace).wait()
            if self._http is not None:
                self._http.shutdown()
                self._http.server_close()
            self._grpc = self._health = self._http = None

    def __enter__(self) -> DraftServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def announcement(self) -> str:
        """One line for people and scripts: ``serving NAME,NAME on grpc ENDPOINT, grpc ENDPOINT, http ENDPOINT``."""
        places = [f"grpc {endpoint}" for endpoint in self.listening] + ([f"http {self.http}"] if self.http else [])
        return f"serving {','.join(self.names)} on {', '.join(places)}"

    def _open_http(self) -> HttpServer | None:
        endpoint = self.config.http
        if endpoint is None:
            return None
        try:
            server = HttpServer((endpoint.host, endpoint.port), self.service)
        except OSError as error:
            raise bind_error(endpoint, "--http", error) from None
        self.http = endpoint.at(server.server_address[1])
        return server


def run_until_signal(server: DraftServer) -> None:
    """Serve until SIGTERM or SIGINT, then stop gracefully; a second signal kills the process. Main thread only."""
    stopping = threading.Event()

    def stop(number: int, _: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with server:
        print(server.announcement(), flush=True)
        stopping.wait()
        LOG.info(
            "stopping: %d requests in flight, %s s of grace", server.service.admission.taken(), server.config.grace
        )


def _bind(server: grpc.Server, endpoint: Endpoint, credentials: grpc.ServerCredentials | None) -> Endpoint:
    check_free(endpoint, "--listen")
    mask = os.umask(0o177)  # a unix socket is born 0600: a chmod afterwards would leave a gap
    try:
        if credentials is None or endpoint.path:
            port = server.add_insecure_port(str(endpoint))
        else:
            port = server.add_secure_port(str(endpoint), credentials)
    except RuntimeError as error:
        raise Unavailable(f"--listen: cannot listen on {endpoint}: {error}") from None
    finally:
        os.umask(mask)
    return endpoint.at(port)
