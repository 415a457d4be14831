"""A synchronous gRPC server with the standard health and reflection services."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from suffolk.serving.transport.limits import MAX_METADATA_BYTES, PING_SECONDS
from suffolk.serving.transport.malformed import RefuseMalformed

SPARE_THREADS = 8
"""Threads beyond the admitted requests: they refuse what is too much and answer health checks."""
BACKLOG = 256
"""Calls that may wait for one of the threads; gRPC refuses what is beyond."""


def build_grpc_server(
    name: str, register: Callable[[grpc.Server], None], places: int, max_request_bytes: int, max_reply_bytes: int
) -> tuple[grpc.Server, health.HealthServicer]:
    """A server that is not yet bound or started, and its health service.

    Args:
        name: full name of the service that ``register`` adds.
        places: requests that the service admits at a time; each has a thread.
        max_request_bytes, max_reply_bytes: size of one message.
    """
    pool = ThreadPoolExecutor(places + SPARE_THREADS, thread_name_prefix="grpc")
    options = (
        ("grpc.so_reuseport", 0),  # else a second server takes half of the calls instead of failing to start
        ("grpc.max_receive_message_length", max_request_bytes),
        ("grpc.max_send_message_length", max_reply_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.http2.min_ping_interval_without_data_ms", round(500 * PING_SECONDS)),  # half: pings may come early
    )
    server = grpc.server(
        pool, interceptors=[RefuseMalformed()], options=options, maximum_concurrent_rpcs=places + BACKLOG
    )
    register(server)
    healthy = health.HealthServicer()
    healthy.set(name, health_pb2.HealthCheckResponse.SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(healthy, server)
    reflection.enable_server_reflection((name, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    return server, healthy
