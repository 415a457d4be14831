"""The worker's server with OpenAI's API on its HTTP endpoint."""

from __future__ import annotations

import time

from starlette.types import ASGIApp

from suffolk.serving.net.config import ServerConfig
from suffolk.serving.worker.openai.app import build_openai_app
from suffolk.serving.worker.openai.tool_format import AUTO
from suffolk.serving.worker.server import WorkerServer
from suffolk.serving.worker.service import DecodeService


class OpenAIServer(WorkerServer):
    """Serves ``service`` over gRPC and OpenAI's API. The caller closes its engine after ``stop``."""

    def __init__(
        self, config: ServerConfig, service: DecodeService, cors_origins: tuple[str, ...] = (), tool_format: str = AUTO
    ) -> None:
        super().__init__(config, service)
        self._cors_origins, self._tool_format = cors_origins, tool_format

    def build_app(self) -> ASGIApp:
        started = int(time.time())
        hosts = self.config.host_rules(self._cors_origins)
        return build_openai_app(
            self.service, self.ready, self.authenticator, hosts, started, self._cors_origins, self._tool_format
        )
