"""A server process: gRPC on one or more endpoints, HTTP on at most one, and its start and graceful stop."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TypeVar

import grpc
from grpc_health.v1 import health
from starlette.types import ASGIApp

from suffolk.datastore.errors import SuffolkError, Unavailable
from suffolk.serving.net.admission import AdmissionController, Readiness
from suffolk.serving.net.authenticator import Authenticator
from suffolk.serving.net.config import ServerConfig
from suffolk.serving.net.endpoint import Endpoint, bind_error, check_free
from suffolk.serving.net.http_body import plain_error
from suffolk.serving.net.http_server import HttpLimits, HttpServer
from suffolk.serving.net.tls import ServerTls

LOG = logging.getLogger("suffolk.server")
ServerT = TypeVar("ServerT", bound="Server")
_CANCEL_SECONDS = 2.0
"""Seconds in which cancelled calls may send their errors."""
_POLL_SECONDS = 0.2
"""Seconds between polls. A signal just before a wait does not interrupt the wait; its handler runs at the next poll."""


class ShutdownEvent:
    """An event that asks a server to stop. Thread-safe, and safe in signal handlers.

    ``threading.Event`` is not safe: a handler that runs while the main thread holds the event's lock deadlocks in
    ``set``. ``SimpleQueue.put`` is reentrant.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """Let all threads in ``wait`` return, now and later."""
        self._queue.put(None)

    def wait(self) -> None:
        """Block until ``set`` was called."""
        while True:
            try:
                self._queue.get(timeout=_POLL_SECONDS)
            except Empty:
                continue
            self._queue.put(None)  # for the other threads
            return


class Server(ABC):
    """Base class of the draft server and the worker. A context manager. A server can be started only once.

    Attributes:
        listening: gRPC endpoints with the ports that were bound; set by ``start``.
        http: HTTP endpoint or None; set by ``start``.
        ready: whether calls are accepted, and why not.
        authenticator: finds the callers of both endpoints.
        stopping: set when the server stops; threads of ``start_thread`` watch it. Signal handlers do not set it.
        reloads: name -> function that reads files again, such as the certificates. ``reload`` calls them all. If a
            function raises a SuffolkError, what it read before stays in force.
    """

    error_body = staticmethod(plain_error)
    """Form of errors over HTTP that the application never sees."""

    def __init__(self, config: ServerConfig, admission: AdmissionController) -> None:
        """Raises NotFound, PermissionDenied or InvalidArgument: the access file cannot be read."""
        self.config = config
        self.authenticator = Authenticator(config.access)
        self.listening: tuple[Endpoint, ...] = ()
        self.http: Endpoint | None = None
        self.ready = Readiness()
        self.stopping = threading.Event()
        self.reloads: dict[str, Callable[[], None]] = {}
        self._tls = ServerTls(config.tls) if config.tls else None
        if self._tls:
            self.reloads["the certificates"] = self._tls.reload
        if config.access:
            self.reloads["the access file"] = self.authenticator.reload
        self._reload_requests: SimpleQueue[None] = SimpleQueue()
        self._admission = admission
        self._grpc: grpc.Server | None = None
        self._health: health.HealthServicer | None = None
        self._http: HttpServer | None = None
        self._stop_lock = threading.Lock()
        self._shutdown = ShutdownEvent()
        self._threads: list[threading.Thread] = []

    @abstractmethod
    def build_grpc(self) -> tuple[grpc.Server, health.HealthServicer]:
        """A gRPC server that is not yet bound or started, and its health service."""

    @abstractmethod
    def build_app(self) -> ASGIApp:
        """The application of the HTTP endpoint."""

    def http_limits(self) -> HttpLimits:
        """Limits of the HTTP endpoint."""
        return HttpLimits()

    @abstractmethod
    def subject(self) -> str:
        """Name of the model or the datastores, for ``announcement``."""

    def cancel_calls(self) -> None:
        """Log that calls outlast the grace period. Subclasses may end these calls with an error instead. Afterwards ``stop``
        closes the connections of calls that still run."""
        LOG.warning("the grace period of %g s is over: %d calls are cut off", self.config.grace, self.in_flight())

    def in_flight(self) -> int:
        """Calls that are running."""
        return self._admission.in_flight()

    def start(self) -> None:
        """Bind and serve.

        Raises:
            ResourceExhausted, PermissionDenied, InvalidArgument: see ``check_free``.
            Unavailable: gRPC cannot listen on an endpoint.
        """
        self._http = self._open_http()
        try:
            self._grpc, self._health = self.build_grpc()
            self.listening = tuple(_bind(self._grpc, endpoint, self._tls) for endpoint in self.config.listen)
        except BaseException:
            if self._http is not None:
                self._http.close()
            raise
        self._grpc.start()
        if self._http is not None:
            self.start_thread("http", self._http.run)
        self.start_thread("reload", self._reload_on_request)
        self.ready.set()
        for endpoint in [*self.listening, *([self.http] if self.http else [])]:
            if not endpoint.is_private():
                if self._tls is None:
                    LOG.warning("%s is plaintext and reachable from other machines", endpoint)
                if not self.config.authenticates:
                    LOG.warning("%s answers every machine that can reach it", endpoint)

    def start_thread(self, name: str, work: Callable[[], None]) -> None:
        """Run ``work`` in a thread. It must return soon after ``stopping`` is set; ``stop`` joins it.

        An unjoined thread may free the model while the interpreter exits, which aborts the process."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def wait(self) -> None:
        """Block until ``request_stop``. Subclasses raise the error that stopped the server, if any."""
        self._shutdown.wait()

    def request_stop(self) -> None:
        """Let ``wait`` return. Threads and signal handlers may call it."""
        self._shutdown.set()

    def set_grace(self, seconds: float) -> None:
        """Change the time that running calls get when the server stops. Raises InvalidArgument: ``seconds`` is out of
        range."""
        self.config = replace(self.config, grace=seconds)

    def set_drain(self, seconds: float) -> None:
        """Change the time for which a stopping server answers new calls. Raises InvalidArgument: ``seconds`` is out of
        range."""
        self.config = replace(self.config, drain=seconds)

    def request_reload(self) -> None:
        """Call ``reload`` in a thread soon. Threads and signal handlers may call it."""
        self._reload_requests.put(None)

    def reload(self) -> None:
        """Call all functions in ``reloads``. If a file cannot be read, the error is logged, and the old content stays
        in force."""
        for name, read in self.reloads.items():
            try:
                read()
            except SuffolkError as error:
                LOG.error("reload: %s cannot be read, and what was there stays in force: %s", name, error)
            else:
                LOG.info("reload: read %s again", name)

    def mark_unready(self, reason: str) -> None:
        """Report NOT_SERVING to health checks, and over HTTP also the reason. Calls are still answered."""
        self.ready.clear(reason)
        health_service = self._health  # ``stop`` in another thread may clear it
        if health_service is not None:
            health_service.enter_graceful_shutdown()

    def stop(self) -> None:
        """Report NOT_SERVING, and answer calls for ``drain`` more seconds. Then refuse new calls, wait up to ``grace`` seconds for
        running ones, and cancel those that still run.

        Returns when all servers and threads have stopped.

        Thread-safe and idempotent.
        """
        self.request_stop()
        self.stopping.set()
        self.request_reload()  # wakes the reloading thread, which then ends
        with self._stop_lock:
            if self.ready.is_set():
                self.mark_unready("stopping")
                time.sleep(self.config.drain)  # load balancers stop sending calls
            end = time.monotonic() + self.config.grace
            self._admission.close()  # HTTP still answers health checks
            if self._grpc is not None:
                self._grpc.stop(self.config.grace).wait()
            if not self._admission.wait_idle(end - time.monotonic()):
                self.cancel_calls()
                self._admission.wait_idle(_CANCEL_SECONDS)
            if self._http is not None:
                self._http.stop(end - time.monotonic())
            while self._threads:
                self._threads.pop().join()
            self._grpc = self._health = self._http = None

    def __enter__(self: ServerT) -> ServerT:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def announcement(self) -> str:
        """One line for people and scripts: ``serving SUBJECT on grpc ENDPOINT, grpc ENDPOINT, http ENDPOINT`` (https with TLS)."""
        http = "https" if self.config.tls else "http"
        endpoints = [f"grpc {endpoint}" for endpoint in self.listening] + ([f"{http} {self.http}"] if self.http else [])
        return f"serving {self.subject()} on {', '.join(endpoints)}"

    def _open_http(self) -> HttpServer | None:
        endpoint = self.config.http
        if endpoint is None:
            return None
        try:
            server = HttpServer(endpoint, self.build_app(), self.http_limits(), self._tls, self.error_body)
        except OSError as error:
            raise bind_error(endpoint, "--http", error) from None
        self.http = server.endpoint
        return server

    def _reload_on_request(self) -> None:
        while not self.stopping.is_set():
            with suppress(Empty):
                self._reload_requests.get(timeout=_POLL_SECONDS)
                if not self.stopping.is_set():
                    self.reload()


def run_until_signal(server: Server) -> None:
    """Serve until SIGTERM, SIGINT or ``request_stop``, then stop gracefully. Call it in the main thread.

    A second SIGTERM or SIGINT kills the process. SIGHUP calls ``server.reload``.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        server.request_stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGHUP, lambda number, frame: server.request_reload())
    with server:
        print(server.announcement(), flush=True)
        server.wait()
        LOG.info("stopping: %d calls in flight, %s s of grace", server.in_flight(), server.config.grace)


def ignore_sighup() -> None:
    """Ignore SIGHUP, which by default ends a process. For the time in which a server loads a model or a datastore."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _bind(server: grpc.Server, endpoint: Endpoint, tls: ServerTls | None) -> Endpoint:
    check_free(endpoint, "--listen")
    mask = os.umask(0o177)  # creates a unix socket with mode 0600; chmod afterwards would leave a gap
    try:
        if tls is None or endpoint.path:
            port = server.add_insecure_port(str(endpoint))
        else:
            port = server.add_secure_port(str(endpoint), tls.grpc_credentials())
    except RuntimeError as error:
        raise Unavailable(f"--listen: cannot listen on {endpoint}: {error}") from None
    finally:
        os.umask(mask)
    return endpoint.with_port(port)
