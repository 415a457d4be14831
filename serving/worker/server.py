"""One worker: gRPC on any number of endpoints, HTTP for metrics and health, on one engine."""

from __future__ import annotations

from functools import partial

import grpc
from grpc_health.v1 import health

from suffolk.datastore.errors import Internal
from suffolk.serving.transport.config import ServerConfig
from suffolk.serving.transport.http_server import Handler, HttpServer
from suffolk.serving.transport.server import Server
from suffolk.serving.worker.grpc_server import build_server
from suffolk.serving.worker.service import Service

_LOOK_SECONDS = 0.1
"""How often to look whether the engine lives."""


class WorkerServer(Server):
    """Serves ``service``, whose engine it does not own: close it after ``stop``. When the engine dies, health says so, running
    calls fail with the reason, and ``wait`` raises it."""

    def __init__(self, config: ServerConfig, service: Service) -> None:
        super().__init__(config)
        self.service = service

    def start(self) -> None:
        super().start()
        self.run_beside("watch-engine", self._watch)
        self.run_beside("watch-readers", partial(self.service.patience.watch, self.ending))

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
        while not self.ending.wait(_LOOK_SECONDS):
            if not self.service.engine.alive:
                self.turn_unready()
                self.want_stop()
                return
