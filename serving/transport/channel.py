"""Channels to our services, from the parts of a URL."""

from __future__ import annotations

import grpc

from serving.transport.limits import MAX_METADATA_BYTES
from serving.transport.tls import TlsFiles, channel_credentials
from serving.transport.url import ServiceUrl

_HOUR = 3_600_000


def open_channel(
    url: ServiceUrl, max_request_bytes: int, max_reply_bytes: int, silence: float | None = None
) -> grpc.Channel:
    """A channel that connects when it is used. Raises NotFound, PermissionDenied or InvalidArgument for the URL's TLS files.

    ``silence``: seconds after which a connection whose other end confirms nothing is given up for a new one; None: the system's
    choice. After a cut of the network of some length the system's own next attempt may be as far away again.
    """
    options = [
        ("grpc.max_send_message_length", max_request_bytes),
        ("grpc.max_receive_message_length", max_reply_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),  # a restarted server is found again within half a second,
        ("grpc.min_reconnect_backoff_ms", 100),  # where the defaults back off to two minutes
        ("grpc.max_reconnect_backoff_ms", 500),
    ]
    if silence is not None:  # gRPC sets TCP_USER_TIMEOUT to it where it may ping, which it need not do often for that
        options += [("grpc.keepalive_time_ms", _HOUR), ("grpc.keepalive_timeout_ms", round(1000 * silence))]
    if not url.tls:
        return grpc.insecure_channel(url.target, options)
    return grpc.secure_channel(url.target, channel_credentials(TlsFiles(url.cert, url.key, url.ca)), options)
