"""Rejects requests that are not valid protobuf messages. gRPC alone would log a traceback and report a fault of the server."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class MalformedRequestInterceptor(grpc.ServerInterceptor):
    """Answers malformed requests with INVALID_ARGUMENT. A method that takes a stream gets
    the DecodeError in place of the message."""

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Handler | None], details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = continuation(details)
        return None if handler is None else _checked(details.method, handler)


def _checked(method: str, handler: Handler) -> Handler:
    deserialize = handler.request_deserializer
    if deserialize is None:
        return handler

    def parse(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            return error  # a deserializer cannot end the call; ``check`` can

    def check(answer: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(answer)  # copies the attribute by which gRPC's health service runs without a thread
        def call(request: Any, context: grpc.ServicerContext, *more: Any) -> Any:
            if isinstance(request, DecodeError):
                text = f"{method}: the request is not a message of this method; encode it with the service's .proto"
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
            return answer(request, context, *more)

        return call

    if handler.unary_unary is not None:
        return grpc.unary_unary_rpc_method_handler(check(handler.unary_unary), parse, handler.response_serializer)
    if handler.unary_stream is not None:
        return grpc.unary_stream_rpc_method_handler(check(handler.unary_stream), parse, handler.response_serializer)
    if handler.stream_unary is not None:  # its method gets the error as a message
        return grpc.stream_unary_rpc_method_handler(handler.stream_unary, parse, handler.response_serializer)
    return handler
