"""Channels to our services, from the parts of a URL."""

from __future__ import annotations

import grpc

from suffolk.serving.transport.limits import MAX_METADATA_BYTES
from suffolk.serving.transport.tls import TlsFiles, channel_credentials
from suffolk.serving.transport.url import ServiceUrl

MAX_BACKOFF_SECONDS = 0.5
"""After an attempt to connect that failed, the next one begins at most so much later, and a fifth of that: gRPC's jitter."""
_HOUR = 3600.0


def open_channel(
    url: ServiceUrl, max_request_bytes: int, max_reply_bytes: int, silence: float, ping: float | None = None
) -> grpc.Channel:
    """A channel that connects when it is used. Raises NotFound, PermissionDenied or InvalidArgument for the URL's TLS files.

    ``silence``: seconds after which a connection whose other end confirms nothing is given up for a new one. After a cut of the
    network of some length the system's own next attempt may be as far away again.
    ``ping``: seconds, PING_SECONDS or more, after which a call that only listens asks the other end to confirm something; None
    for calls that are short, or have a deadline.
    """
    options = [
        ("grpc.max_send_message_length", max_request_bytes),
        ("grpc.max_receive_message_length", max_reply_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),  # a restarted server is found again within half a second,
        ("grpc.min_reconnect_backoff_ms", 100),  # where the defaults back off to two minutes
        ("grpc.max_reconnect_backoff_ms", round(1000 * MAX_BACKOFF_SECONDS)),
        ("grpc.keepalive_time_ms", round(1000 * (ping or _HOUR))),
        ("grpc.keepalive_timeout_ms", round(1000 * silence)),  # TCP_USER_TIMEOUT too, which gRPC sets where it may ping
    ]
    if ping is not None:
        # else the third ping of a call that only listens waits for a minute, and so does one behind a ping that measures the line
        options += [("grpc.http2.max_pings_without_data", 0), ("grpc.http2.ping_timeout_ms", round(1000 * silence))]
    if not url.tls:
        return grpc.insecure_channel(url.target, options)
    return grpc.secure_channel(url.target, channel_credentials(TlsFiles(url.cert, url.key, url.ca)), options)
