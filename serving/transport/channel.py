"""Channels to our services, from the parts of a URL."""

from __future__ import annotations

import grpc

from serving.transport.limits import MAX_METADATA_BYTES
from serving.transport.tls import TlsFiles, channel_credentials
from serving.transport.url import ServiceUrl


def open_channel(url: ServiceUrl, max_request_bytes: int, max_reply_bytes: int) -> grpc.Channel:
    """A channel that connects when it is used. Raises NotFound or InvalidArgument for the URL's TLS files."""
    options = (
        ("grpc.max_send_message_length", max_request_bytes),
        ("grpc.max_receive_message_length", max_reply_bytes),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 100),  # a restarted server is found again within half a second,
        ("grpc.min_reconnect_backoff_ms", 100),  # where the defaults back off to two minutes
        ("grpc.max_reconnect_backoff_ms", 500),
    )
    if not url.tls:
        return grpc.insecure_channel(url.target, options)
    return grpc.secure_channel(url.target, channel_credentials(TlsFiles(url.cert, url.key, url.ca)), options)
