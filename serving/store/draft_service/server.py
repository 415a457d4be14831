"""The draft server: gRPC and HTTP on the same datastores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import grpc
from grpc_health.v1 import health
from starlette.types import ASGIApp

from suffolk.datastore import limits
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.settings import Within
from suffolk.serving.net.config import ServerConfig
from suffolk.serving.net.grpc_server import build_grpc_server
from suffolk.serving.net.metrics import QuotaMetrics
from suffolk.serving.net.proto import draft_pb2_grpc, replication_pb2_grpc
from suffolk.serving.net.server import Server
from suffolk.serving.store.draft_service.grpc_server import DraftServicer
from suffolk.serving.store.draft_service.http_app import build_draft_app
from suffolk.serving.store.draft_service.service import DraftService
from suffolk.serving.store.replication.replicated_store import ReplicatedStore
from suffolk.serving.store.replication.servicer import FOLLOW, MAX_FOLLOWERS, ReplicationServicer

MAX_MIN_COUNT = 1024


@dataclass(frozen=True, slots=True)
class DraftServerConfig(ServerConfig):
    """Settings of a draft server.

    Attributes:
        max_concurrent: calls in flight, 1..1024; more are rejected. At 2,000 calls per second, each additional call
            in flight adds 0.5 ms of latency.
        min_count: text of fewer documents is hidden (``MinCount``); 1 shows all.
        shows_occurrences: whether callers may ask in which documents a text occurs.
        playground: whether there is a web page at the HTTP endpoint.
    """

    max_concurrent: Annotated[int, Within(1, 1024)] = 32
    min_count: Annotated[int, Within(1, MAX_MIN_COUNT)] = 1
    shows_occurrences: bool = True
    playground: bool = False


class DraftServer(Server):
    """Serves ``datastores``. The caller closes them after ``stop``."""

    def __init__(self, config: DraftServerConfig, datastores: Mapping[str, Retriever]) -> None:
        if not datastores:
            raise InvalidArgument("no datastore to serve; name at least one, as in: suffolk serve STORE")
        self.names = sorted(datastores)
        self.service = DraftService(datastores, config.max_concurrent, config.min_count, config.shows_occurrences)
        self._playground = config.playground
        self._replicas = sum(isinstance(store, ReplicatedStore) for store in datastores.values())
        super().__init__(config, self.service.admission)
        self.service.metrics.registry.register(QuotaMetrics(self.authenticator.usages))

    def build_grpc(self) -> tuple[grpc.Server, health.HealthServicer]:
        return build_grpc_server(
            "suffolk.v1.DraftService",
            self._register,
            self.service.admission,
            self.service.metrics,
            self.authenticator,
            limits.MAX_REQUEST_BYTES,
            limits.MAX_REPLY_BYTES,
            ("Draft", "Lookup", "Count"),
            {FOLLOW: MAX_FOLLOWERS * self._replicas} if self._replicas else {},
        )

    def _register(self, server: grpc.Server) -> None:
        draft_pb2_grpc.add_DraftServiceServicer_to_server(DraftServicer(self.service), server)
        if self._replicas:
            servicer = ReplicationServicer(self.service.find, self.service.admission.has_ended)
            replication_pb2_grpc.add_ReplicationServiceServicer_to_server(servicer, server)

    def build_app(self) -> ASGIApp:
        return build_draft_app(self.service, self.ready, self.authenticator, self.config.host_rules(), self._playground)

    def subject(self) -> str:
        return ",".join(self.names)
