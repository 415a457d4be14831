"""Opens a gRPC channel from the parts of a URL."""

from __future__ import annotations

import grpc

from suffolk.serving.net.limits import MAX_METADATA_BYTES
from suffolk.serving.net.send_token import SendToken, read_token
from suffolk.serving.net.tls import TlsFiles, channel_credentials
from suffolk.serving.net.url import ServiceUrl

MAX_BACKOFF_SECONDS = 0.5
"""Longest delay between connection attempts. gRPC adds up to 20 % jitter."""
_HOUR = 3600.0


def open_channel(
    url: ServiceUrl, max_request_bytes: int, max_reply_bytes: int, keepalive_timeout: float, ping: float | None = None
) -> grpc.Channel:
    """A channel that connects at its first call.

    Args:
        keepalive_timeout: seconds without an acknowledgement after which a connection is replaced.
        ping: seconds between keepalive pings, PING_SECONDS or more, for long streams; None for calls with a short deadline.

    Raises:
        NotFound, PermissionDenied, InvalidArgument: a TLS or token file of the URL is missing, not readable or malformed.
    """
    options = [
        ("grpc.max_send_message_length", max_request_bytes),
        ("grpc.max_receive_message_length", max_reply_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),  # gRPC's defaults back off to two minutes
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", round(1000 * MAX_BACKOFF_SECONDS)),
        ("grpc.keepalive_time_ms", round(1000 * (ping or _HOUR))),
        ("grpc.keepalive_timeout_ms", round(1000 * keepalive_timeout)),  # sets TCP_USER_TIMEOUT too
    ]
    if ping is not None:  # otherwise gRPC delays the third ping of a stream without data by a minute
        options += [
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.ping_timeout_ms", round(1000 * keepalive_timeout)),
        ]
    token = read_token(url.token_file) if url.token_file else ""
    if url.tls:
        credentials = channel_credentials(TlsFiles(url.cert, url.key, url.ca))
        channel = grpc.secure_channel(url.target, credentials, options)
    else:
        channel = grpc.insecure_channel(url.target, options)
    return grpc.intercept_channel(channel, SendToken(token)) if token else channel
