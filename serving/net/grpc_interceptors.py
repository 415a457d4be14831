"""The interceptor of admitted gRPC calls: finds the caller, sends errors, and refuses a malformed request."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from suffolk.datastore.errors import PermissionDenied, SuffolkError
from suffolk.serving.net.authenticator import Authenticator
from suffolk.serving.net.call_errors import abort_call, grpc_code
from suffolk.serving.net.metrics import RequestMetrics
from suffolk.serving.net.quota import QuotaExceeded
from suffolk.serving.net.tracing import HEADER, begin_request, server_span

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
OPEN_SERVICE = "/grpc.health.v1.Health/"
"""Methods that need no identity."""
_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class CallInterceptor(grpc.ServerInterceptor):
    """Ends calls without an identity with UNAUTHENTICATED, and calls beyond a quota with RESOURCE_EXHAUSTED.

    Sets ``caller()`` and ``request_id()`` for all other calls, and ends a call with the SuffolkError that its method raises.
    With tracing on, these calls also have a span. Health checks need no identity.

    Answers with INVALID_ARGUMENT if a request is not a valid protobuf message. Without this, gRPC would report an error of the
    server. A method that takes a stream and returns one reply gets the DecodeError instead of the message.
    Methods with streams in both directions are not checked.

    The caller is set in the call's thread. gRPC runs a call, and the generator of its replies, in one thread.
    """

    def __init__(self, authenticator: Authenticator, metrics: RequestMetrics) -> None:
        self._authenticator, self._metrics = authenticator, metrics

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Handler | None], details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = continuation(details)
        if handler is None:
            return None
        handler = _checked(details.method, handler)
        return handler if details.method.startswith(OPEN_SERVICE) else self._guarded(details.method, handler)

    def _guarded(self, method: str, handler: Handler) -> Handler:
        kind = _kind(handler)
        answer = getattr(handler, kind)

        def call(request: Any, context: grpc.ServicerContext) -> Any:
            with self._entered(method, context):
                return answer(request, context)

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            with self._entered(method, context):
                yield from answer(request, context)

        return _handler(kind, stream if kind.endswith("stream") else call, handler.request_deserializer, handler)

    @contextmanager
    def _entered(self, method: str, context: grpc.ServicerContext) -> Iterator[None]:
        headers = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        begin_request(headers.get(HEADER))
        try:
            usage = self._authenticator.admit(headers.get("authorization", ""), _subjects(context))
        except (PermissionDenied, QuotaExceeded) as error:
            code = grpc_code(error) if isinstance(error, QuotaExceeded) else grpc.StatusCode.UNAUTHENTICATED
            self._metrics.count_answer("grpc", method.rpartition("/")[2], code.name)
            abort_call(context, error, code)
        if usage is not None and not context.add_callback(usage.end_call):
            usage.end_call()  # the call has ended already
        with server_span(method.lstrip("/"), headers):
            try:
                yield
            except SuffolkError as error:
                abort_call(context, error)


def _subjects(context: grpc.ServicerContext) -> list[str]:
    """Common name and alternative names of the client's certificate; none without mTLS."""
    found: Mapping[str, Sequence[bytes]] = context.auth_context()  # type: ignore[assignment]  # types-grpcio is wrong
    keys = ("x509_common_name", "x509_subject_alternative_name")
    return [value.decode("utf-8", "replace") for key in keys for value in found.get(key, ())]


def _checked(method: str, handler: Handler) -> Handler:
    deserialize, kind = handler.request_deserializer, _kind(handler)
    if deserialize is None or kind == "stream_stream":
        return handler

    def parse(data: bytes) -> Any:
        try:
            return deserialize(data)
        except DecodeError as error:
            return error  # a deserializer cannot end the call; ``check`` can

    def check(answer: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(answer)  # also copies the attribute that lets gRPC's health service run without a thread
        def call(request: Any, context: grpc.ServicerContext, *more: Any) -> Any:
            if isinstance(request, DecodeError):
                text = f"{method}: the request is not a message of this method; encode it with the service's .proto"
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
            return answer(request, context, *more)

        return call

    answer = getattr(handler, kind)
    checked = answer if kind == "stream_unary" else check(answer)  # a stream's method gets the error as a message
    return _handler(kind, checked, parse, handler)


def _kind(handler: Handler) -> str:
    return next(each for each in _KINDS if getattr(handler, each) is not None)


def _handler(kind: str, answer: Callable[..., Any], parse: Callable[[bytes], Any] | None, old: Handler) -> Handler:
    make: Callable[..., Handler] = getattr(grpc, f"{kind}_rpc_method_handler")
    return make(answer, parse, old.response_serializer)
