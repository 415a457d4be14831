"""The worker's server: generation over gRPC, OpenAI's API with metrics and health over HTTP, on one engine."""

from __future__ import annotations

import logging
import time
from functools import partial

import grpc
from grpc_health.v1 import health
from starlette.types import ASGIApp

from suffolk.datastore.errors import Internal
from suffolk.serving.net.config import ServerConfig
from suffolk.serving.net.grpc_server import build_grpc_server
from suffolk.serving.net.http_server import SPARE_CONNECTIONS, HttpLimits
from suffolk.serving.net.metrics import QuotaMetrics
from suffolk.serving.net.proto import decode_pb2_grpc
from suffolk.serving.net.server import Server
from suffolk.serving.worker import limits
from suffolk.serving.worker.grpc_server import DecodeServicer
from suffolk.serving.worker.openai.app import build_openai_app
from suffolk.serving.worker.openai.tool_format import AUTO
from suffolk.serving.worker.service import DecodeService

LOG = logging.getLogger("suffolk.worker")
_POLL_SECONDS = 0.1
"""Seconds between two checks of the engine's thread."""


class WorkerServer(Server):
    """Serves ``service``. The caller closes its engine after ``stop``.

    If the engine dies, health checks report NOT_SERVING, running calls fail with the cause, and ``wait`` raises it."""

    def __init__(
        self,
        config: ServerConfig,
        service: DecodeService,
        cors_origins: tuple[str, ...] = (),
        tool_format: str = AUTO,
        reasoning: str = AUTO,
    ) -> None:
        """``cors_origins``, ``tool_format``, ``reasoning``: as in ``build_openai_app``."""
        super().__init__(config, service.admission)
        self._cors_origins, self._formats = cors_origins, (tool_format, reasoning)
        self.service = service
        service.metrics.registry.register(QuotaMetrics(self.authenticator.usages))

    def start(self) -> None:
        super().start()
        self.start_thread("watch-engine", self._watch_engine)
        self.start_thread("watch-slow-clients", partial(self.service.slow_clients.run, self.stopping))

    def wait(self) -> None:
        """Block until ``request_stop``. Raises Internal if the engine has died."""
        super().wait()
        if self.service.engine.death is not None:
            raise Internal(f"the engine has died ({self.service.engine.death}); start the worker again")

    def cancel_calls(self) -> None:
        cancelled = self.service.engine.cancel_all()
        LOG.warning("the grace period of %g s is over: %d texts are cancelled", self.config.grace, cancelled)

    def build_grpc(self) -> tuple[grpc.Server, health.HealthServicer]:
        return build_grpc_server(
            "suffolk.v1.DecodeService",
            partial(decode_pb2_grpc.add_DecodeServiceServicer_to_server, DecodeServicer(self.service)),
            self.service.admission,
            self.service.metrics,
            self.authenticator,
            limits.MAX_REQUEST_BYTES,
            limits.MAX_REPLY_BYTES,
        )

    def build_app(self) -> ASGIApp:
        started = int(time.time())
        hosts = self.config.host_rules(self._cors_origins)
        return build_openai_app(
            self.service, self.ready, self.authenticator, hosts, started, self._cors_origins, *self._formats
        )

    def http_limits(self) -> HttpLimits:
        connections = self.service.admission.max_in_flight + SPARE_CONNECTIONS
        return HttpLimits(connections, write_seconds=self.service.slow_clients.seconds)

    def subject(self) -> str:
        return self.service.model

    def _watch_engine(self) -> None:
        while not self.stopping.wait(_POLL_SECONDS):
            if not self.service.engine.alive:
                self.mark_unready("the engine has died")
                self.request_stop()
                return
