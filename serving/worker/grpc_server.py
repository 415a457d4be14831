"""The gRPC methods of the worker. Each stream has a thread, which sleeps while the engine's thread works."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

import grpc
import numpy as np
import numpy.typing as npt

from suffolk.datastore.arguments import check_size
from suffolk.datastore.errors import Field, InvalidArgument, SuffolkError
from suffolk.serving.decoding.engine.loop.prompt import encode_chat, encode_text
from suffolk.serving.decoding.engine.model.target import Target
from suffolk.serving.net.call_errors import abort_call
from suffolk.serving.net.proto import decode_pb2, decode_pb2_grpc
from suffolk.serving.net.tokens import unpack_tokens
from suffolk.serving.worker import limits
from suffolk.serving.worker.call import GenerateCall, StepJoiner
from suffolk.serving.worker.service import DecodeService
from suffolk.serving.worker.settings import require_known, unpack_settings
from suffolk.serving.worker.wire import pack_step, unpack_options

OnEnd = Callable[[Callable[[], None]], bool]
"""Registers a callback for the end of the call. Returns False if the call has already ended."""


class DecodeServicer(decode_pb2_grpc.DecodeServiceServicer):
    """Passes protobuf messages to ``DecodeService``."""

    def __init__(self, service: DecodeService) -> None:
        self._service = service

    def Generate(
        self, request: decode_pb2.GenerateRequest, context: grpc.ServicerContext
    ) -> Iterator[decode_pb2.GenerateReply]:
        try:
            replies = self._replies(request, context.add_callback)
            yield from self._service.slow_clients.watch_stream(replies, context.cancel)
        except SuffolkError as error:
            abort_call(context, error)

    def GetInfo(
        self, request: decode_pb2.GetWorkerInfoRequest, context: grpc.ServicerContext
    ) -> decode_pb2.GetWorkerInfoReply:
        try:
            return self._service.info()
        except SuffolkError as error:
            abort_call(context, error)

    def _replies(
        self, request: decode_pb2.GenerateRequest, on_end: OnEnd
    ) -> Generator[decode_pb2.GenerateReply, None, None]:
        """The replies to one request.

        The request's slot is free when the text has ended, even if replies are unread.
        """
        service = self._service
        with service.admit("Generate") as outcome:
            call = unpack_call(request, service.engine.target, service.engine.capacity)
            generation, shows_sources = service.start(call), service.shows_sources(call)
            if not on_end(generation.cancel):  # after a normal end, cancelling has no effect
                generation.cancel()
            joiner = StepJoiner(service.stream_interval)
            for step in generation:
                if step.finish:
                    service.record(generation, call)
                if (joined := joiner.add(step)) is not None:
                    yield pack_step(joined, generation.stats if step.finish else None, shows_sources)
            service.require_end(generation, outcome)


def unpack_call(request: decode_pb2.GenerateRequest, target: Target, most: int | None = None) -> GenerateCall:
    """Convert ``request`` to a call. Its prompt becomes tokens of ``target``. ``most``: as in ``encode_text``.

    Raises:
        InvalidArgument: a field is out of its limits, or the prompt cannot be used.
        Unsupported: a field is not supported.
    """
    require_known(request, "request")
    return GenerateCall(
        prompt=_prompt(request, target, most),
        settings=unpack_settings(request.sampling),
        drafter=request.drafter,
        max_nodes=request.max_nodes if request.HasField("max_nodes") else None,
        options=unpack_options(request.options),
        kind=request.WhichOneof("prompt") or "",
    )


def _prompt(
    request: decode_pb2.GenerateRequest, target: Target, most: int | None
) -> Sequence[int] | npt.NDArray[np.int32]:
    kind = request.WhichOneof("prompt")
    if kind == "text":
        check_size("text", len(request.text), limits.MAX_TEXT, "characters", "shorten the prompt")
        return encode_text(target, request.text, most=most)
    if kind == "chat":
        return encode_chat(target, _messages(request.chat), most=most)
    if kind == "token_ids":
        tokens = unpack_tokens(request.token_ids, "token_ids")
        check_size("token_ids", len(tokens), limits.MAX_PROMPT, "tokens", "shorten the prompt")
        return tokens
    raise InvalidArgument(Field("prompt"), ": there is none; give one of text, chat and token_ids")


def _messages(chat: decode_pb2.Chat) -> list[tuple[str, str]]:
    limits.check_messages("chat.messages", len(chat.messages))  # before they are read
    require_known(chat, "chat")
    for index, message in enumerate(chat.messages):
        require_known(message, f"chat.messages[{index}]")
    messages = [(message.role, message.content) for message in chat.messages]
    limits.check_chat("chat.messages", [role for role, _ in messages], [content for _, content in messages])
    return messages
