"""A synchronous gRPC server with the standard health and reflection services, and its threads.

Calls for which there is no room are refused before their request is read (``EarlyRefusal``).
"""

from __future__ import annotations

import ctypes
import os
import resource
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from suffolk.datastore.errors import ResourceExhausted
from suffolk.serving.net.admission import AdmissionController
from suffolk.serving.net.authenticator import Authenticator
from suffolk.serving.net.call_errors import abort_call
from suffolk.serving.net.channel import MAX_METADATA_BYTES, PING_SECONDS
from suffolk.serving.net.grpc_interceptors import OPEN_SERVICE, CallInterceptor, Handler
from suffolk.serving.net.metrics import RequestMetrics

ARENAS = 2
"""Arenas of the C heap. Fewer arenas keep less freed memory."""
_M_ARENA_MAX = -8  # malloc.h
SPARE_THREADS = 8
"""Threads in addition to one per admitted call. They reject calls and answer health checks."""
MOST_CONNECTIONS = 1 << 16
SHORT_THREADS = 8
"""Threads for short calls. More would compete for Python's lock, with each other and with the thread that receives calls."""


def share_arenas() -> None:
    """Let all threads allocate from ARENAS arenas of glibc. Call it before threads start, because existing arenas stay.

    By default each thread gets an arena, up to 8 arenas for each core. Each arena keeps its freed memory. So with many threads, a
    server takes more memory, and its memory grows for longer. If the environment has MALLOC_ARENA_MAX, that number stays valid.
    Other C libraries have no arenas.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, ARENAS)


class CallPool(ThreadPoolExecutor):
    """A pool of threads for calls. It counts the calls that run or wait for a thread. Thread-safe.

    Attributes:
        most: calls beyond which the pool is full.
    """

    def __init__(self, name: str, threads: int, most: int) -> None:
        super().__init__(threads, thread_name_prefix=name)
        self.most = most
        self._calls = 0
        self._count_lock = threading.Lock()

    def is_full(self) -> bool:
        """Whether there is no room for one more call."""
        return self._calls >= self.most

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future = super().submit(work, *args, **named)
        self._count(1)
        future.add_done_callback(lambda _: self._count(-1))
        return future

    def _count(self, change: int) -> None:
        with self._count_lock:
            self._calls += change


class CallingThread(ThreadPoolExecutor):
    """Runs each call in the thread that submits it. gRPC takes only a ThreadPoolExecutor."""

    def submit(self, work: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **named))
        except Exception as error:  # noqa: BLE001  the future holds it
            future.set_exception(error)
        return future


class _Method(NamedTuple):
    """The threads of a method, the handler that answers its calls, and the handler that refuses them."""

    pool: CallPool
    answer: Handler
    refusal: Handler


class EarlyRefusal(grpc.ServerInterceptor):
    """Ends a call immediately if the pool of its method is full. Health checks pass.

    gRPC calls this interceptor in the thread that receives all calls, so a refusal needs no other thread. A refusal must cost
    little: a server that gets twice as many calls as it can answer refuses as many calls as it answers.
    """

    def __init__(
        self,
        admission: AdmissionController,
        metrics: RequestMetrics,
        others: CallPool,
        own: Mapping[str, CallPool],
    ) -> None:
        """``own``: method -> its own threads. ``others``: the threads for all other methods."""
        self._admission, self._metrics = admission, metrics
        self._others, self._own = others, own
        self._methods: dict[str, _Method] = {}  # the server's methods, by name
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
            self._metrics.count_answer("grpc", label, "RESOURCE_EXHAUSTED")
            seconds = self._admission.retries.next()
            abort_call(context, ResourceExhausted(text, change="none", retry_seconds=seconds))

        refuse.experimental_thread_pool = self._this_thread  # type: ignore[attr-defined]
        return grpc.stream_unary_rpc_method_handler(refuse)


def build_grpc_server(
    name: str,
    register: Callable[[grpc.Server], None],
    admission: AdmissionController,
    metrics: RequestMetrics,
    authenticator: Authenticator,
    max_request_bytes: int,
    max_reply_bytes: int,
    short_calls: Collection[str] = (),
    streams: Mapping[str, int] | None = None,
) -> tuple[grpc.Server, health.HealthServicer]:
    """A server that is not yet bound or started, and its health service.

    Args:
        name: full name of the service that ``register`` adds to the server.
        admission: its limit is also the limit for short calls that run or wait. Calls of other methods are refused if no
            thread is free.
        metrics: counts the calls that are refused before they reach the service.
        authenticator: finds the caller of every call except health checks.
        max_request_bytes, max_reply_bytes: limits of one message.
        short_calls: methods without a stream that compute for milliseconds. These calls wait for one of SHORT_THREADS
            threads.
        streams: full name of a method with a stream in both directions that may run for days -> how many run at a time. These
            streams take no thread from other calls.
    """
    most = admission.max_in_flight
    pool = CallPool("grpc", most + SPARE_THREADS, most + SPARE_THREADS)
    short = CallPool("grpc-short", min(most, SHORT_THREADS), most)
    own = {f"/{name}/{method}": short for method in short_calls}
    own |= {f"/{method}": CallPool("grpc-stream", number, number) for method, number in (streams or {}).items()}
    options = (
        ("grpc.so_reuseport", 0),  # a second server on this port fails to start instead of taking half of the calls
        ("grpc.max_receive_message_length", max_request_bytes),
        ("grpc.max_send_message_length", max_reply_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.max_allowed_incoming_connections", most_connections()),
        ("grpc.http2.min_ping_interval_without_data_ms", round(500 * PING_SECONDS)),  # half: pings may be early
    )
    interceptors: list[grpc.ServerInterceptor] = [
        EarlyRefusal(admission, metrics, pool, own),
        CallInterceptor(authenticator, metrics),
    ]
    server = grpc.server(pool, interceptors=interceptors, options=options)
    register(server)
    health_service = health.HealthServicer()
    health_service.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health_service, server)
    reflection.enable_server_reflection((name, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return server, health_service


def most_connections() -> int:
    """Connections that a server accepts: half of the files that this process may open. With more, it could not open any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(OSError, ValueError):  # on an error, the soft limit stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, files // 2)
