"""The errors of Suffolk as gRPC codes and HTTP statuses: one table, read in both directions."""

from __future__ import annotations

import http

import grpc

from suffolk.datastore import errors
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.transport.limits import MAX_ERROR_TEXT

TABLE: dict[type[SuffolkError], tuple[grpc.StatusCode, http.HTTPStatus]] = {
    errors.InvalidArgument: (grpc.StatusCode.INVALID_ARGUMENT, http.HTTPStatus.BAD_REQUEST),
    errors.NotFound: (grpc.StatusCode.NOT_FOUND, http.HTTPStatus.NOT_FOUND),
    errors.Corruption: (grpc.StatusCode.DATA_LOSS, http.HTTPStatus.INTERNAL_SERVER_ERROR),
    errors.Unsupported: (grpc.StatusCode.UNIMPLEMENTED, http.HTTPStatus.NOT_IMPLEMENTED),
    errors.ResourceExhausted: (grpc.StatusCode.RESOURCE_EXHAUSTED, http.HTTPStatus.TOO_MANY_REQUESTS),
    errors.Unavailable: (grpc.StatusCode.UNAVAILABLE, http.HTTPStatus.SERVICE_UNAVAILABLE),
    errors.DeadlineExceeded: (grpc.StatusCode.DEADLINE_EXCEEDED, http.HTTPStatus.GATEWAY_TIMEOUT),
    errors.PermissionDenied: (grpc.StatusCode.PERMISSION_DENIED, http.HTTPStatus.FORBIDDEN),
    errors.Internal: (grpc.StatusCode.INTERNAL, http.HTTPStatus.INTERNAL_SERVER_ERROR),
}

_ERRORS: dict[grpc.StatusCode, type[SuffolkError]] = {
    **{code: error for error, (code, _) in TABLE.items()},
    grpc.StatusCode.CANCELLED: errors.Unavailable,  # the server, or we ourselves, hung up
    grpc.StatusCode.UNAUTHENTICATED: errors.PermissionDenied,
}


def grpc_code(error: SuffolkError) -> grpc.StatusCode:
    return TABLE[_kind(error)][0]


def http_status(error: SuffolkError) -> http.HTTPStatus:
    return TABLE[_kind(error)][1]


def error_of(code: grpc.StatusCode, text: str) -> SuffolkError:
    """The error that a reply with this code stands for; Internal for codes that no server of ours sends."""
    if code in _ERRORS:
        return _ERRORS[code](text)
    return errors.Internal(f"{text} (gRPC code {code.name})")


def error_text(error: SuffolkError) -> str:
    """The error's message, on one line and short enough for the trailers of a call."""
    return " ".join(str(error).split())[:MAX_ERROR_TEXT]


def _kind(error: SuffolkError) -> type[SuffolkError]:
    return next((kind for kind in TABLE if isinstance(error, kind)), errors.Internal)
