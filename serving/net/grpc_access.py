"""Authenticates gRPC calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import grpc

from suffolk.datastore.errors import PermissionDenied
from suffolk.serving.net import tracing
from suffolk.serving.net.authenticator import Authenticator
from suffolk.serving.net.error_details import abort_call
from suffolk.serving.net.request_id import HEADER, begin_request
from suffolk.serving.net.request_metrics import RequestMetrics
from suffolk.serving.net.status import grpc_code
from suffolk.serving.net.usage import QuotaExceeded

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
OPEN_SERVICE = "/grpc.health.v1.Health/"
"""Methods that need no identity."""
_KINDS = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")


class AccessInterceptor(grpc.ServerInterceptor):
    """Ends calls without an identity with UNAUTHENTICATED, and calls beyond a quota with RESOURCE_EXHAUSTED.

    Sets ``caller()`` and ``request_id()`` for all others. With tracing on, they also have a span. Health checks pass.

    The caller is set in the call's thread. gRPC runs a call, and the generator of its replies, in one thread.
    """

    def __init__(self, authenticator: Authenticator, metrics: RequestMetrics) -> None:
        self._authenticator, self._metrics = authenticator, metrics

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Handler | None], details: grpc.HandlerCallDetails
    ) -> Handler | None:
        handler = continuation(details)
        if handler is None or details.method.startswith(OPEN_SERVICE):
            return handler
        return self._guarded(details.method, handler)

    def _guarded(self, method: str, handler: Handler) -> Handler:
        kind = next(each for each in _KINDS if getattr(handler, each) is not None)
        answer = getattr(handler, kind)

        def call(request: Any, context: grpc.ServicerContext) -> Any:
            with self._entered(method, context):
                return answer(request, context)

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            with self._entered(method, context):
                yield from answer(request, context)

        make: Callable[..., Handler] = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            stream if kind.endswith("stream") else call, handler.request_deserializer, handler.response_serializer
        )

    @contextmanager
    def _entered(self, method: str, context: grpc.ServicerContext) -> Iterator[None]:
        headers = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        begin_request(headers.get(HEADER))
        try:
            usage = self._authenticator.admit(headers.get("authorization", ""), _subjects(context))
        except (PermissionDenied, QuotaExceeded) as error:
            code = grpc_code(error) if isinstance(error, QuotaExceeded) else grpc.StatusCode.UNAUTHENTICATED
            self._metrics.count_refusal("grpc", method.rpartition("/")[2], code.name)
            abort_call(context, error, code)
        if usage is not None and not context.add_callback(usage.end_call):
            usage.end_call()  # the call has ended already
        with tracing.server_span(method.lstrip("/"), headers):
            yield


def _subjects(context: grpc.ServicerContext) -> list[str]:
    """Common name and alternative names of the client's certificate; none without mTLS."""
    found: Mapping[str, Sequence[bytes]] = context.auth_context()  # type: ignore[assignment]  # types-grpcio is wrong
    keys = ("x509_common_name", "x509_subject_alternative_name")
    return [value.decode("utf-8", "replace") for key in keys for value in found.get(key, ())]
