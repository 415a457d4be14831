"""Adds a client's token to its gRPC calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from suffolk.datastore.errors import Field, InvalidArgument, NotFound, PermissionDenied

MAX_TOKEN = 1024
"""Characters of a token."""


def read_token(file: str) -> str:
    """The token in the first line of ``file``.

    Raises:
        NotFound, PermissionDenied: the file cannot be read.
        InvalidArgument: its first line is not a token.
    """
    try:
        with Path(file).open(encoding="utf-8-sig", errors="replace") as opened:
            token = opened.readline(MAX_TOKEN + 2).strip()
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
        return continuation(self._with_token(client_call_details), request)

    intercept_unary_stream = intercept_unary_unary
    intercept_stream_unary = intercept_unary_unary  # type: ignore[assignment]  # only the details differ
    intercept_stream_stream = intercept_unary_unary  # type: ignore[assignment]

    def _with_token(self, details: Any) -> Any:
        return details._replace(metadata=[*(details.metadata or ()), self._header])
