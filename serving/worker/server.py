"""One worker: gRPC on any number of endpoints, HTTP for metrics and health, on one engine."""

from __future__ import annotations

import threading

import grpc
from grpc_health.v1 import health

from datastore.errors import Internal
from serving.transport.config import ServerConfig
from serving.transport.http_server import Handler, HttpServer
from serving.transport.server import Server
from serving.worker.grpc_server import build_server
from serving.worker.service import Service


class WorkerServer(Server):
    """Serves ``service``, whose engine it does not own: close it after ``stop``. When the engine dies, health says so, running
    calls fail with the reason, and ``wait`` raises it."""

    def __init__(self, config: ServerConfig, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def start(self) -> None:
        super().start()
        threading.Thread(target=self._watch, name="watch-engine", daemon=True).start()
        patience = self.service.patience
        threading.Thread(target=patience.watch, args=(self._ending,), name="watch-readers", daemon=True).start()

    def wait(self) -> None:
        """Return when somebody wants the server to stop. Raises Internal if the engine has died."""
        super().wait()
        if self.service.engine.death is not None:
            raise Internal(f"the engine has died ({self.service.engine.death}); start the worker again")

    def build_grpc(self) -> tuple[grpc.Server, health.HealthServicer]:
        return build_server(self.service)

    def build_http(self, address: tuple[str, int]) -> HttpServer:
        return HttpServer(address, Handler, self.service.metrics.exposition)

    def subject(self) -> str:
        return self.service.model

    def in_flight(self) -> int:
        return self.service.admission.taken()

    def _watch(self) -> None:
        self.service.engine.join()
        self.turn_unready()
        self.want_stop()
