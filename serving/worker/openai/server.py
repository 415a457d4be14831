"""The worker's server with OpenAI's API on its HTTP endpoint, and which web pages may read its answers."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from starlette.types import ASGIApp

from suffolk.datastore.errors import Field, InvalidArgument
from suffolk.serving.net.config import ServerConfig
from suffolk.serving.worker.openai.app import build_openai_app
from suffolk.serving.worker.openai.tool_format import AUTO
from suffolk.serving.worker.server import WorkerServer
from suffolk.serving.worker.service import DecodeService

_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?")


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


def check_origins(origins: Sequence[str]) -> tuple[str, ...]:
    """Return ``origins`` as a tuple. Raises InvalidArgument for an origin that no browser sends."""
    for index, origin in enumerate(origins):
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise InvalidArgument(
                Field("cors_origin"),
                f"[{index}] is {origin!r}; write SCHEME://HOST or SCHEME://HOST:PORT in lower case, or *",
            )
    return tuple(origins)
