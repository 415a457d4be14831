"""One draft server: gRPC on any number of endpoints, HTTP on one, all on the same datastores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health

from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import Retriever
from suffolk.serving.draft_service.grpc_server import build_server
from suffolk.serving.draft_service.http_server import DraftHttpServer
from suffolk.serving.draft_service.service import Service
from suffolk.serving.transport.config import ServerConfig
from suffolk.serving.transport.server import Server


@dataclass(frozen=True, slots=True)
class DraftServerConfig(ServerConfig):
    """How a draft server serves: as any of ours, and

    Attributes:
        max_concurrent: requests worked on at a time, 1..1024; more are refused. At 2,000 requests per second each one
            more in flight costs half a millisecond, so the default keeps the last within a decoding step's deadline.
    """

    max_concurrent: int = 32

    def __post_init__(self) -> None:
        ServerConfig.__post_init__(self)
        if not 1 <= self.max_concurrent <= 1024:
            raise InvalidArgument(f"--max-concurrent is {self.max_concurrent}; it must be in 1..1024")


class DraftServer(Server):
    """Serves ``datastores``, which it does not own: close them after ``stop``.

    Attributes:
        service: what answers, with its metrics.
    """

    def __init__(self, config: DraftServerConfig, datastores: Mapping[str, Retriever]) -> None:
        if not datastores:
            raise InvalidArgument("no datastore to serve; name at least one")
        super().__init__(config)
        self.names = sorted(datastores)
        self.service = Service(datastores, config.max_concurrent)

    def build_grpc(self) -> tuple[grpc.Server, health.HealthServicer]:
        return build_server(self.service)

    def build_http(self, address: tuple[str, int]) -> DraftHttpServer:
        return DraftHttpServer(address, self.service)

    def subject(self) -> str:
        return ",".join(self.names)

    def in_flight(self) -> int:
        return self.service.admission.taken()
