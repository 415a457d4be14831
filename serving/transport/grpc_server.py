"""A synchronous gRPC server with the standard health and reflection services."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from suffolk.datastore.errors import ResourceExhausted, SuffolkError
from suffolk.serving.transport.authenticator import Authenticator
from suffolk.serving.transport.grpc_access import RETRY_KEY, AccessInterceptor
from suffolk.serving.transport.limits import MAX_METADATA_BYTES, PING_SECONDS
from suffolk.serving.transport.malformed_requests import MalformedRequestInterceptor
from suffolk.serving.transport.status import error_text, grpc_code
from suffolk.serving.transport.usage import QuotaExceeded

SPARE_THREADS = 8
"""Threads in addition to one per admitted call. They reject calls and answer health checks."""
RETRY_SECONDS = 0.1
"""When a refused call may be tried again, unless a quota says another time."""
BACKLOG = 256
"""Most calls that wait for a thread, by default."""


def build_grpc_server(
    name: str,
    register: Callable[[grpc.Server], None],
    max_in_flight: int,
    max_request_bytes: int,
    max_reply_bytes: int,
    authenticator: Authenticator,
    backlog: int = BACKLOG,
) -> tuple[grpc.Server, health.HealthServicer]:
    """A server that is not yet bound or started, and its health service.

    Args:
        name: full name of the service that ``register`` adds to the server.
        max_in_flight: calls that the service admits at a time. Each call has a thread.
        max_request_bytes, max_reply_bytes: limits of one message.
        authenticator: finds the caller of every call except health checks.
        backlog: most calls that wait for a thread. gRPC refuses further calls at once.
    """
    pool = ThreadPoolExecutor(max_in_flight + SPARE_THREADS, thread_name_prefix="grpc")
    options = (
        ("grpc.so_reuseport", 0),  # a second server on this port fails to start instead of taking half of the calls
        ("grpc.max_receive_message_length", max_request_bytes),
        ("grpc.max_send_message_length", max_reply_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.http2.min_ping_interval_without_data_ms", round(500 * PING_SECONDS)),  # halved: a ping may be early
    )
    interceptors: list[grpc.ServerInterceptor] = [AccessInterceptor(authenticator), MalformedRequestInterceptor()]
    server = grpc.server(
        pool, interceptors=interceptors, options=options, maximum_concurrent_rpcs=max_in_flight + backlog
    )
    register(server)
    health_service = health.HealthServicer()
    health_service.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(health_service, server)
    reflection.enable_server_reflection((name, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return server, health_service


def abort_call(context: grpc.ServicerContext, error: SuffolkError) -> NoReturn:
    """End a call with the status code and the message of ``error``. A refusal says when to try again."""
    if isinstance(error, ResourceExhausted):
        seconds = error.retry_seconds if isinstance(error, QuotaExceeded) else RETRY_SECONDS
        context.set_trailing_metadata(((RETRY_KEY, str(round(1000 * seconds))),))
    context.abort(grpc_code(error), error_text(error))
