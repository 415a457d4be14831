"""Refuses gRPC calls for which there is no room, before their request is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeAlias

import grpc

from suffolk.datastore.errors import ResourceExhausted
from suffolk.serving.net.admission import AdmissionController
from suffolk.serving.net.call_pool import CallingThread, CallPool
from suffolk.serving.net.error_details import abort_call
from suffolk.serving.net.grpc_access import OPEN_SERVICE
from suffolk.serving.net.request_metrics import RequestMetrics

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class _Method(NamedTuple):
    """The threads of a method, the handler that answers its calls, and the one that refuses them."""

    pool: CallPool
    answer: Handler
    refusal: Handler


class EarlyRefusal(grpc.ServerInterceptor):
    """Ends a call at once if the pool of its method is full. Health checks pass.

    gRPC asks in the thread that receives all calls, so a refusal takes no other thread and waits for none. It must cost little:
    a server that gets twice the calls that it can answer refuses as many as it answers.
    """

    def __init__(
        self,
        admission: AdmissionController,
        metrics: RequestMetrics,
        others: CallPool,
        own: Mapping[str, CallPool],
    ) -> None:
        """``own``: threads of their own for some methods, by name; ``others``: the server's threads for all others."""
        self._admission, self._metrics = admission, metrics
        self._others, self._own = others, own
        self._methods: dict[str, _Method] = {}  # that the server has, by name
        self._this_thread = CallingThread(1)

    def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Handler | None], details: grpc.HandlerCallDetails
    ) -> Handler | None:
        method = self._methods.get(details.method)
        if method is None:
            handler = continuation(details)
            if handler is None:
                return None
            method = self._methods[details.method] = self._method(details.method, handler)
        return method.refusal if method.pool.is_full() else method.answer

    def _method(self, name: str, handler: Handler) -> _Method:
        if name.startswith(OPEN_SERVICE):
            return _Method(self._others, handler, handler)
        pool = self._own.get(name)
        if pool is None:
            return _Method(self._others, handler, self._refusal(name, self._others.most))
        answer: Any = handler.unary_unary or handler.stream_stream
        answer.experimental_thread_pool = pool  # gRPC runs the call there
        return _Method(pool, handler, self._refusal(name, pool.most))

    def _refusal(self, name: str, most: int) -> Handler:
        """A handler that takes a stream, because nothing is read of a stream before its handler asks for it."""
        label = name.rpartition("/")[2]
        text = f"the server already has {most} calls, its limit; try again later or raise {self._admission.option}"

        def refuse(requests: object, context: grpc.ServicerContext) -> NoReturn:
            self._metrics.count_refusal("grpc", label, "RESOURCE_EXHAUSTED")
            seconds = self._admission.retries.next()
            abort_call(context, ResourceExhausted(text, change="none", retry_seconds=seconds))

        refuse.experimental_thread_pool = self._this_thread  # type: ignore[attr-defined]
        return grpc.stream_unary_rpc_method_handler(refuse)
