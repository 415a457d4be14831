"""One server: gRPC on any number of endpoints, HTTP on one, both on the same service."""

from __future__ import annotations

import logging
import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TypeVar

import grpc
from grpc_health.v1 import health

from suffolk.datastore.errors import Unavailable
from suffolk.serving.transport.config import ServerConfig
from suffolk.serving.transport.endpoint import Endpoint, bind_error, check_free
from suffolk.serving.transport.http_server import HttpServer
from suffolk.serving.transport.shutdown_event import ShutdownEvent
from suffolk.serving.transport.tls import server_credentials

LOG = logging.getLogger("suffolk.server")
ServerT = TypeVar("ServerT", bound="Server")


class Server(ABC):
    """What is served is the subclass's. A context manager; starts once.

    Attributes:
        listening: the gRPC endpoints with their real ports; http: the HTTP endpoint or None; both after ``start``.
        ending: set once the server stops.
    """

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.listening: tuple[Endpoint, ...] = ()
        self.http: Endpoint | None = None
        self._grpc: grpc.Server | None = None
        self._health: health.HealthServicer | None = None
        self._http: HttpServer | None = None
        self._stopping = threading.Lock()
        self._wish = ShutdownEvent()
        self.ending = threading.Event()  # for threads of its own: no signal handler sets it
        self._threads: list[threading.Thread] = []

    @abstractmethod
    def build_grpc(self) -> tuple[grpc.Server, health.HealthServicer]:
        """A server that is not yet bound or started, and its health service."""

    @abstractmethod
    def build_http(self, address: tuple[str, int]) -> HttpServer:
        """A server that is bound and not yet started; raises OSError."""

    @abstractmethod
    def subject(self) -> str:
        """What is served, in a word or two."""

    @abstractmethod
    def in_flight(self) -> int:
        """Requests being worked on."""

    def start(self) -> None:
        """Bind and serve, or raise: ResourceExhausted for an address in use, PermissionDenied, InvalidArgument."""
        credentials = server_credentials(self.config.tls) if self.config.tls else None
        self._http = self._open_http()
        try:
            self._grpc, self._health = self.build_grpc()
            self.listening = tuple(_bind(self._grpc, endpoint, credentials) for endpoint in self.config.listen)
        except BaseException:
            if self._http is not None:
                self._http.server_close()
            raise
        self._grpc.start()
        if self._http is not None:
            self.run_beside("http", partial(self._http.serve_forever, 0.05))
            self._http.ready.set()
        for endpoint in [*(() if credentials else self.listening), *([self.http] if self.http else [])]:
            if not endpoint.is_private():
                LOG.warning("plaintext on %s: anyone who can reach it can read along", endpoint)

    def run_beside(self, name: str, work: Callable[[], None]) -> None:
        """Run ``work``, which ends once ``ending`` is set, in a thread of its own; ``stop`` waits for it.

        A thread left behind could be the last to hold a model, and an interpreter that ends kills a thread that frees one: the
        process aborts."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def wait(self) -> None:
        """Return when somebody wants the server to stop. Raises what made it stop by itself, if it did."""
        self._wish.wait()

    def want_stop(self) -> None:
        """Let ``wait`` return. Any thread or signal handler may call it."""
        self._wish.tell()

    def turn_unready(self) -> None:
        """Tell who asks for health that nothing more is taken; calls are still answered."""
        pages, healthy = self._http, self._health  # another thread may be in ``stop``
        if pages is not None:
            pages.ready.clear()
        if healthy is not None:
            healthy.enter_graceful_shutdown()

    def stop(self) -> None:
        """Become not ready, take no more calls, give those in flight their grace, cancel the rest; returns when down.

        Any thread may call it, and more than once.
        """
        self.want_stop()
        self.ending.set()
        with self._stopping:
            self.turn_unready()
            if self._grpc is not None:
                self._grpc.stop(self.config.grace).wait()
            if self._http is not None:
                self._http.shutdown()
                self._http.server_close()
            while self._threads:
                self._threads.pop().join()
            self._grpc = self._health = self._http = None

    def __enter__(self: ServerT) -> ServerT:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def announcement(self) -> str:
        """One line for people and scripts: ``serving SUBJECT on grpc ENDPOINT, grpc ENDPOINT, http ENDPOINT``."""
        places = [f"grpc {endpoint}" for endpoint in self.listening] + ([f"http {self.http}"] if self.http else [])
        return f"serving {self.subject()} on {', '.join(places)}"

    def _open_http(self) -> HttpServer | None:
        endpoint = self.config.http
        if endpoint is None:
            return None
        try:
            server = self.build_http((endpoint.host, endpoint.port))
        except OSError as error:
            raise bind_error(endpoint, "--http", error) from None
        self.http = endpoint.at(server.server_address[1])
        return server


def run_until_signal(server: Server) -> None:
    """Serve until SIGTERM, SIGINT, or the server's own end (see ``Server.wait``), then stop gracefully; a second signal kills
    the process. Main thread only."""

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        server.want_stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    with server:
        print(server.announcement(), flush=True)
        server.wait()
        LOG.info("stopping: %d requests in flight, %s s of grace", server.in_flight(), server.config.grace)


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
