"""A synchronous gRPC server with the standard health and reflection services."""

from __future__ import annotations

import resource
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from types import MappingProxyType

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from suffolk.serving.net.admission import AdmissionController
from suffolk.serving.net.authenticator import Authenticator
from suffolk.serving.net.call_pool import CallPool
from suffolk.serving.net.early_refusal import EarlyRefusal
from suffolk.serving.net.grpc_access import AccessInterceptor
from suffolk.serving.net.limits import MAX_METADATA_BYTES, PING_SECONDS
from suffolk.serving.net.malformed_requests import MalformedRequestInterceptor
from suffolk.serving.net.request_metrics import RequestMetrics

NO_STREAMS: Mapping[str, int] = MappingProxyType({})
SPARE_THREADS = 8
"""Threads in addition to one per admitted call. They reject calls and answer health checks."""
MOST_CONNECTIONS = 1 << 16
SHORT_THREADS = 8
"""Threads for short calls. More would compete for Python's lock, with each other and with the thread that receives calls."""


def build_grpc_server(
    name: str,
    register: Callable[[grpc.Server], None],
    admission: AdmissionController,
    metrics: RequestMetrics,
    authenticator: Authenticator,
    max_request_bytes: int,
    max_reply_bytes: int,
    short_calls: Collection[str] = (),
    streams: Mapping[str, int] = NO_STREAMS,
) -> tuple[grpc.Server, health.HealthServicer]:
    """A server that is not yet bound or started, and its health service.

    Args:
        name: full name of the service that ``register`` adds to the server.
        admission: its limit is also that of the short calls that run or wait. A call of another method that finds no thread is
            refused.
        metrics: counts the calls that are refused before they reach the service.
        authenticator: finds the caller of every call except health checks.
        max_request_bytes, max_reply_bytes: limits of one message.
        short_calls: methods without a stream that compute for milliseconds. They wait for one of SHORT_THREADS threads.
        streams: full name of a method with a stream in both directions that may run for days -> how many run at a time. They take
            no thread of the other calls.
    """
    most = admission.max_in_flight
    pool = CallPool("grpc", most + SPARE_THREADS, most + SPARE_THREADS)
    short = CallPool("grpc-short", min(most, SHORT_THREADS), most)
    own = {f"/{name}/{method}": short for method in short_calls}
    own |= {f"/{method}": CallPool("grpc-stream", number, number) for method, number in streams.items()}
    options = (
        ("grpc.so_reuseport", 0),  # a second server on this port fails to start instead of taking half of the calls
        ("grpc.max_receive_message_length", max_request_bytes),
        ("grpc.max_send_message_length", max_reply_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.max_allowed_incoming_connections", most_connections()),
        ("grpc.http2.min_ping_interval_without_data_ms", round(500 * PING_SECONDS)),  # halved: a ping may be early
    )
    interceptors: list[grpc.ServerInterceptor] = [
        EarlyRefusal(admission, metrics, pool, own),
        AccessInterceptor(authenticator, metrics),
        MalformedRequestInterceptor(),
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
        with suppress(OSError, ValueError):  # then the lower limit holds
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, files // 2)
