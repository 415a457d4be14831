"""The worker's server: one engine behind gRPC for generation, and HTTP for OpenAI's API, metrics and health."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Sequence
from functools import partial

import grpc
import numpy as np
import numpy.typing as npt
from grpc_health.v1 import health
from starlette.types import ASGIApp

from suffolk.datastore.arguments import check_size
from suffolk.datastore.errors import Field, Internal, InvalidArgument
from suffolk.serving.decoding.engine.loop.prompt import encode_chat, encode_text
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.net.config import ServerConfig
from suffolk.serving.net.grpc_server import build_grpc_server
from suffolk.serving.net.http_server import SPARE_CONNECTIONS, HttpLimits
from suffolk.serving.net.metrics import QuotaMetrics
from suffolk.serving.net.proto import decode_pb2, decode_pb2_grpc
from suffolk.serving.net.server import Server
from suffolk.serving.net.tokens import unpack_tokens
from suffolk.serving.worker import limits
from suffolk.serving.worker.call import GenerateCall, StepJoiner
from suffolk.serving.worker.openai.app import build_openai_app
from suffolk.serving.worker.openai.errors import error_body
from suffolk.serving.worker.openai.tool_format import AUTO
from suffolk.serving.worker.service import DecodeService
from suffolk.serving.worker.settings import require_known, unpack_settings
from suffolk.serving.worker.wire import pack_step, unpack_options


class DecodeServicer(decode_pb2_grpc.DecodeServiceServicer):
    """Passes protobuf messages to ``DecodeService``."""

    def __init__(self, service: DecodeService) -> None:
        self._service = service

    def Generate(
        self, request: decode_pb2.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[decode_pb2.GenerateReply]:
        yield from self._service.slow_clients.watch_stream(self._replies(request, context), context.cancel)

    def GetInfo(
        self, request: decode_pb2.GetWorkerInfoRequest, context: grpc.ServicerContext
    ) -> decode_pb2.GetWorkerInfoReply:
        return self._service.info()

    def _replies(
        self, request: decode_pb2.GenerateRequest, context: grpc.ServicerContext
    ) -> Generator[decode_pb2.GenerateReply, None, None]:
        """The replies to one request.

        The request's slot is free when the text has ended, even if replies are unread.
        """
        service = self._service
        with service.metrics.measure_call("grpc", "Generate") as outcome, service.admission.admit_call():
            call = unpack_call(request, service.engine.target, service.engine.capacity)
            generation, shows_sources = service.start(call), service.shows_sources(call)
            if not context.add_callback(generation.cancel):  # False: the call has ended
                generation.cancel()  # after a normal end, cancelling has no effect
            joiner = StepJoiner(service.stream_interval)
            for step in generation:
                if step.finish:
                    service.record(generation, call)
                if (joined := joiner.add(step)) is not None:
                    yield pack_step(joined, generation.stats if step.finish else None, shows_sources)
            service.require_end(generation, outcome)


def unpack_call(request: decode_pb2.GenerateRequest, target: Target, limit: int | None = None) -> GenerateCall:
    """Convert ``request`` to a call. Its prompt becomes tokens of ``target``. ``limit``: as in ``encode_text``.

    Raises:
        InvalidArgument: a field is out of its limits, or the prompt cannot be used.
        Unsupported: a field is not supported.
    """
    require_known(request, "request")
    return GenerateCall(
        prompt=_prompt(request, target, limit),
        settings=unpack_settings(request.sampling),
        drafter=request.drafter,
        max_nodes=request.max_nodes if request.HasField("max_nodes") else None,
        options=unpack_options(request.options),
        kind=request.WhichOneof("prompt") or "",
    )


def _prompt(
    request: decode_pb2.GenerateRequest, target: Target, limit: int | None
) -> Sequence[int] | npt.NDArray[np.int32]:
    kind = request.WhichOneof("prompt")
    if kind == "text":
        check_size("text", len(request.text), limits.MAX_TEXT, "characters", "shorten the prompt")
        return encode_text(target, request.text, limit=limit)
    if kind == "chat":
        return encode_chat(target, _messages(request.chat), limit=limit)
    if kind == "token_ids":
        tokens = unpack_tokens(request.token_ids, "token_ids")
        check_size("token_ids", len(tokens), limits.MAX_PROMPT, "tokens", "shorten the prompt")
        return tokens
    raise InvalidArgument(Field("prompt"), ": there is none; give one of text, chat and token_ids")


def _messages(chat: decode_pb2.Chat) -> list[tuple[str, str]]:
    limits.check_messages("chat.messages", len(chat.messages))  # checked before the messages are read
    require_known(chat, "chat")
    for index, message in enumerate(chat.messages):
        require_known(message, f"chat.messages[{index}]")
    messages = [(message.role, message.content) for message in chat.messages]
    limits.check_chat("chat.messages", [role for role, _ in messages], [content for _, content in messages])
    return messages


LOG = logging.getLogger("suffolk.worker")
_POLL_SECONDS = 0.1
"""Seconds between two checks of the engine's thread."""


class WorkerServer(Server):
    """Serves ``service``. The caller closes its engine after ``stop``.

    If the engine dies, health checks report NOT_SERVING, running calls fail with the cause, and ``wait`` raises it."""

    error_body = staticmethod(error_body)

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
