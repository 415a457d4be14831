"""Requests that are no messages: the caller's fault, where gRPC itself logs a traceback for each and answers as if it were ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError


class _Malformed:
    """In place of a request: a deserializer cannot refuse one."""


class RefuseMalformed(grpc.ServerInterceptor):
    """Answers INVALID_ARGUMENT to what is no message, for all methods that take one request."""

    def __init__(self) -> None:
        self._guarded: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}  # by method

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        method = handler_call_details.method
        if method not in self._guarded:
            handler = continuation(handler_call_details)
            if handler is None:
                return None
            self._guarded[method] = _guard(method, handler)
        return self._guarded[method]


def _guard(method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
    parse = handler.request_deserializer
    if parse is None:  # takes bytes as they are
        return handler

    def read(data: bytes) -> Any:
        try:
            return parse(data)
        except DecodeError:
            return _Malformed()

    def guarded(answer: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(answer)  # with its attributes: gRPC's health service asks by one to hold no thread
        def call(request: Any, context: grpc.ServicerContext, *more: Any) -> Any:
            if isinstance(request, _Malformed):
                context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"{method}: the request is no message of that method; encode it by the service's .proto",
                )
            return answer(request, context, *more)

        return call

    if handler.unary_unary is not None:
        return grpc.unary_unary_rpc_method_handler(guarded(handler.unary_unary), read, handler.response_serializer)
    if handler.unary_stream is not None:
        return grpc.unary_stream_rpc_method_handler(guarded(handler.unary_stream), read, handler.response_serializer)
    return handler
