"""Opens a gRPC channel from the parts of a URL, and adds the client's token to its calls."""

from __future__ import annotations

import json
from typing import Any

import grpc

from suffolk.datastore.errors import Field, Internal, InvalidArgument, NotFound, PermissionDenied
from suffolk.datastore.files import read_bounded
from suffolk.serving.net.endpoint import parse_endpoint
from suffolk.serving.net.tls import TlsFiles, channel_credentials
from suffolk.serving.net.url import ServiceUrl

MAX_TOKEN = 1024
"""Most characters of an access token."""
MAX_BACKOFF_SECONDS = 0.5
"""Longest delay between connection attempts. gRPC adds up to 20 % jitter."""
_HOUR = 3600.0
MAX_METADATA_BYTES = 8 << 10
"""Most bytes of the headers of one call."""
PING_SECONDS = 20.0
"""Seconds between keepalive pings of a client. A server closes a connection whose client pings much more often."""


def read_token(file: str) -> str:
    """The token in the first line of ``file``.

    Raises:
        NotFound, PermissionDenied: the file cannot be read.
        InvalidArgument: its first line is not a token.
    """
    try:
        token = read_bounded(file).decode("utf-8-sig", "replace").partition("\n")[0].strip()
    except OSError as error:
        kind = PermissionDenied if isinstance(error, PermissionError) else NotFound
        raise kind(f"token_file {file}: it cannot be read: {error.strerror}") from None
    if not 0 < len(token) <= MAX_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidArgument(
            Field("token_file"), f" {file}: its first line is not a token; 'suffolk token add' prints one"
        )
    return token


class SendToken(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the Authorization header to every call. Thread-safe."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        metadata = [*(client_call_details.metadata or ()), self._header]
        return continuation(client_call_details._replace(metadata=metadata), request)

    intercept_unary_stream = intercept_unary_unary
    intercept_stream_unary = intercept_unary_unary  # type: ignore[assignment]  # only the details differ
    intercept_stream_stream = intercept_unary_unary  # type: ignore[assignment]


def parse_server_info(url: str, server: str, text: str) -> dict[str, Any]:
    """``text`` as a dict. Raises Internal if it is not a JSON object. ``server``: "draft service" or "worker"."""
    try:
        info = json.loads(text)
    except (ValueError, RecursionError):
        info = None
    if not isinstance(info, dict):
        raise Internal(f"{url}: the {server} sent server info that is not a JSON object")
    return info


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
    if parse_endpoint(url.target, "URL").is_private():
        options.append(("grpc.enable_http_proxy", 0))  # the proxy would connect to its own loopback
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
