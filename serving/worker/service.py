"""The worker without a transport: admission, limits, metrics, and calls of the engine."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Generator

import numpy as np
import numpy.typing as npt

from suffolk.datastore.errors import InvalidArgument, SuffolkError, Unavailable
from suffolk.datastore.version import __version__
from suffolk.serving.engine.loop.engine import Engine
from suffolk.serving.engine.loop.generation import Generation
from suffolk.serving.engine.loop.prompt import encode_chat, encode_text, has_template
from suffolk.serving.proto import decode_pb2
from suffolk.serving.replay.recorder import Recorder
from suffolk.serving.transport.admission import AdmissionController
from suffolk.serving.transport.limits import MAX_NAME, MAX_NODES, check_range, check_size
from suffolk.serving.transport.tokens import unpack_tokens
from suffolk.serving.worker import limits
from suffolk.serving.worker.metrics import WorkerMetrics
from suffolk.serving.worker.settings import require_known, unpack_settings
from suffolk.serving.worker.slow_client_timeout import SlowClientTimeout
from suffolk.serving.worker.wire import pack_step, unpack_options

LOG = logging.getLogger("suffolk.worker")

PREFERRED = ("hybrid", "datastore", "prompt-lookup")
"""Default drafters, best first."""
OnEnd = Callable[[Callable[[], None]], bool]
"""Registers a function to call when the call ends. Returns False if it has ended."""


class DecodeService:
    """Generates text for all clients of a worker. Thread-safe.

    Attributes:
        model: name of the model, without its folder.
        default_drafter: for requests that name none.
        max_nodes: largest draft tree, as limit and default of requests.
        admission: admits as many streams as the engine has slots and places in its queue. A stream counts until its last reply
            is read.
        slow_clients: cancels streams that are not read.
    """

    def __init__(
        self,
        engine: Engine,
        model: str,
        max_nodes: int = 64,
        slow_client_seconds: float = limits.SLOW_CLIENT_SECONDS,
        recorder: Recorder | None = None,
    ) -> None:
        """Prepare to serve ``engine``, which the caller closes. Raises InvalidArgument if ``max_nodes`` is out of its range.

        Args:
            slow_client_seconds: time that a client may take to read one reply.
            recorder: records every finished text; the caller closes it.
        """
        check_range("max_nodes", max_nodes, 1, MAX_NODES)
        self.engine = engine
        self.model = model
        self.default_drafter = next((name for name in PREFERRED if name in engine.drafters), "none")
        self.max_nodes = max_nodes
        self.admission = AdmissionController(engine.slots + engine.queue, "--slots or queue")
        self.slow_clients = SlowClientTimeout(slow_client_seconds)
        self.metrics = WorkerMetrics(engine, self.admission)
        self._recorder = recorder
        self._warned = False
        if engine.target.tokenizer is not None:
            encode_text(engine.target, "a")  # the first call initializes the tokenizer, which is not thread-safe

    def generate(
        self, request: decode_pb2.GenerateRequest, on_end: OnEnd
    ) -> Generator[decode_pb2.GenerateReply, None, None]:
        """Stream the replies to one request. Its slot is free once the text has ended, even if replies are unread.

        Raises:
            InvalidArgument: a field is out of its limits, or the prompt cannot be used.
            Unsupported: a field is not supported.
            ResourceExhausted: the queue is full, or the request is too long for a slot.
            Unavailable: the worker is stopping.
            Internal: the engine has died.
        """
        with self.metrics.measure_call("grpc", "Generate") as outcome, self.admission.admit_call():
            generation = self._start(request)
            if not on_end(generation.cancel):  # after a normal end, cancelling has no effect
                generation.cancel()
            for step in generation:
                if step.finish:
                    self._record(generation, request)
                yield pack_step(step, generation.stats if step.finish else None)
            if generation.stats.finish == "cancelled":
                outcome.code = "CANCELLED"
                raise Unavailable("the generation was cancelled: the client is gone, or the worker is stopping")

    def info(self) -> decode_pb2.GetWorkerInfoReply:
        """Describe the worker and its current load."""
        with self.metrics.measure_call("grpc", "GetInfo"):
            target, engine, stats = self.engine.target, self.engine, self.engine.stats()
            return decode_pb2.GetWorkerInfoReply(
                server_version=__version__,
                model=self.model,
                vocab_size=target.vocab_size,
                context_length=target.context_length or 0,
                has_chat_template=has_template(target),
                drafters=engine.drafters,
                datastores=engine.datastores,
                default_drafter=self.default_drafter,
                slots=engine.slots,
                capacity=engine.capacity,
                queue=engine.queue,
                max_nodes=self.max_nodes,
                cache_bytes=engine.cache_bytes,
                running=stats["running"],
                waiting=stats["waiting"],
                stats_json=json.dumps(stats),
            )

    def _start(self, request: decode_pb2.GenerateRequest) -> Generation:
        require_known(request, "request")
        check_size("drafter", len(request.drafter), MAX_NAME, "characters")
        max_nodes = request.max_nodes if request.HasField("max_nodes") else self.max_nodes
        check_range("max_nodes", max_nodes, 1, self.max_nodes)
        settings = unpack_settings(request.sampling)
        drafter = request.drafter or self.default_drafter
        options = unpack_options(request.options)
        return self.engine.generate(self._prompt(request), settings, drafter, max_nodes, options)

    def _record(self, generation: Generation, request: decode_pb2.GenerateRequest) -> None:
        """Record a text, grouped by the kind of its prompt. The client does not see failures."""
        if self._recorder is None:
            return
        try:
            self._recorder.add(generation, request.WhichOneof("prompt") or "")
        except SuffolkError as error:
            self.metrics.recording_failures.inc()
            if not self._warned:
                self._warned = True
                LOG.warning("%s; some texts are not recorded", error)

    def _prompt(self, request: decode_pb2.GenerateRequest) -> list[int] | npt.NDArray[np.int32]:
        kind = request.WhichOneof("prompt")
        if kind == "text":
            check_size("text", len(request.text), limits.MAX_TEXT, "characters", "shorten the prompt")
            return encode_text(self.engine.target, request.text)
        if kind == "chat":
            return encode_chat(self.engine.target, _messages(request.chat))
        if kind == "token_ids":
            tokens = unpack_tokens(request.token_ids, "token_ids")
            check_size("token_ids", len(tokens), limits.MAX_PROMPT, "tokens", "shorten the prompt")
            return tokens
        raise InvalidArgument("prompt: there is none; give one of text, chat and token_ids")


def _messages(chat: decode_pb2.Chat) -> list[tuple[str, str]]:
    check_range("chat.messages: the number of messages", len(chat.messages), 1, limits.MAX_MESSAGES)
    require_known(chat, "chat")
    for index, message in enumerate(chat.messages):
        require_known(message, f"chat.messages[{index}]")
        check_size(f"chat.messages[{index}].role", len(message.role), MAX_NAME, "characters")
    size = sum(len(message.content) for message in chat.messages)
    check_size("chat", size, limits.MAX_TEXT, "characters", "shorten the prompt")
    return [(message.role, message.content) for message in chat.messages]
