"""The worker without a transport: limits, admission, metrics, and the calls into the engine."""

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
from suffolk.serving.engine.loop.request import Step
from suffolk.serving.proto import decode_pb2
from suffolk.serving.replay.recorder import Recorder
from suffolk.serving.transport.admission import Admission
from suffolk.serving.transport.limits import MAX_NODES, check_range
from suffolk.serving.transport.tokens import unpack_tokens
from suffolk.serving.worker import limits
from suffolk.serving.worker.metrics import Metrics
from suffolk.serving.worker.settings import require_known, unpack_settings
from suffolk.serving.worker.slow_client_timeout import Patience
from suffolk.serving.worker.wire import Reply, pack_reply

log = logging.getLogger(__name__)

PREFERRED = ("hybrid", "datastore", "prompt-lookup")
"""Drafters, the best default first."""
OnHangUp = Callable[[Callable[[], None]], bool]
"""Registers what is to be done once the caller is gone or late; False if that is so already."""


class Service:
    """Generates for all callers of a worker. Thread-safe.

    Attributes:
        model: how the model is called, without its folder.
        default_drafter: for requests that name none.
        max_nodes: the largest draft tree that a request may ask for, and gets if it does not ask.
        admission: places for streams, as many as the engine has slots and places in its queue. A stream has one until its last
            reply is taken.
        patience: how long that may take.
    """

    def __init__(
        self,
        engine: Engine,
        model: str,
        max_nodes: int = 64,
        patience: float = limits.PATIENCE,
        recorder: Recorder | None = None,
    ) -> None:
        """Raises InvalidArgument if ``max_nodes`` is out of its range. ``patience``: seconds that a reply waits for its reader.
        ``recorder``: takes what ends, before its last reply goes out; the caller closes it."""
        check_range("--max-nodes", max_nodes, 1, MAX_NODES)
        self.engine = engine
        self.model = model
        self.default_drafter = next((name for name in PREFERRED if name in engine.drafters), "none")
        self.max_nodes = max_nodes
        self.admission = Admission(engine.slots + engine.queue, "--slots or --queue")
        self.patience = Patience(patience)
        self.metrics = Metrics(engine, self.admission.taken)
        self._recorder = recorder
        self._warned = False
        if engine.target.tokenizer is not None:
            encode_text(engine.target, "a")  # the first call may set it up, which must not happen in two threads

    def generate(
        self, request: decode_pb2.GenerateRequest, on_hang_up: OnHangUp
    ) -> Generator[decode_pb2.GenerateReply, None, None]:
        """The replies to one request, as they come. The slot is free once the text has ended, whether or not they are taken.

        Raises:
            InvalidArgument: a field is beyond its limit, or the prompt cannot be used.
            Unsupported: a field is not served.
            ResourceExhausted: the queue is full, or the request too long for a slot.
            Unavailable: the worker is stopping.
            Internal: the engine has died.
        """
        with self.metrics.answering("grpc", "Generate") as outcome, self.admission.enter():
            generation = self._start(request)
            if not on_hang_up(generation.cancel):
                generation.cancel()
            for step in generation:
                if step.finish:
                    self._record(generation, request)
                yield pack_reply(_reply(step, generation))
            if generation.stats.finish == "cancelled":
                outcome.code = "CANCELLED"
                raise Unavailable("the generation was cancelled: the caller is gone, or the worker is stopping")

    def info(self) -> decode_pb2.GetWorkerInfoReply:
        """Facts about the worker, and what it does now."""
        with self.metrics.answering("grpc", "GetInfo"):
            target, engine, stats = self.engine.target, self.engine, self.engine.stats()
            return decode_pb2.GetWorkerInfoReply(
                server_version=__version__,
                model=self.model,
                vocab_size=target.vocab_size,
                context_length=target.context_length or 0,
                takes_chat=has_template(target),
                drafters=engine.drafters,
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
        limits.check_name("drafter", request.drafter)
        limits.check_name("request_class", request.request_class)
        max_nodes = self.max_nodes
        if request.HasField("max_nodes"):
            limits.check_nodes(request.max_nodes, self.max_nodes)
            max_nodes = request.max_nodes
        settings = unpack_settings(request.sampling)
        drafter = request.drafter or self.default_drafter
        return self.engine.generate(self._prompt(request), settings, drafter, max_nodes, request.request_class)

    def _record(self, generation: Generation, request: decode_pb2.GenerateRequest) -> None:
        """Keep what was generated, under its class or the kind of its prompt; where that fails the caller does not notice."""
        if self._recorder is None:
            return
        try:
            self._recorder.add(generation, request.request_class or request.WhichOneof("prompt") or "")
        except SuffolkError as error:
            self.metrics.unrecorded.inc()
            if not self._warned:
                self._warned = True
                log.warning("%s; going on without recordings of some texts", error)

    def _prompt(self, request: decode_pb2.GenerateRequest) -> list[int] | npt.NDArray[np.int32]:
        kind = request.WhichOneof("prompt")
        if kind == "text":
            limits.check_text("text", len(request.text))
            return encode_text(self.engine.target, request.text)
        if kind == "chat":
            return encode_chat(self.engine.target, _messages(request.chat))
        if kind == "token_ids":
            tokens = unpack_tokens(request.token_ids, "token_ids")
            limits.check_prompt(len(tokens))
            return tokens
        raise InvalidArgument("prompt: there is none; give one of text, chat and token_ids")


def _messages(chat: decode_pb2.Chat) -> list[tuple[str, str]]:
    limits.check_messages(len(chat.messages))  # before anything is made of each: a request holds millions
    require_known(chat, "chat")
    for place, message in enumerate(chat.messages):
        require_known(message, f"chat.messages[{place}]")
    messages = [(message.role, message.content) for message in chat.messages]
    limits.check_chat([role for role, _ in messages], sum(len(content) for _, content in messages))
    return messages


def _reply(step: Step, generation: Generation) -> Reply:
    stats = generation.stats if step.finish else None
    return Reply(step.tokens, step.sources, step.pieces, step.finish, step.log_probabilities, stats)
