"""Maps Suffolk's errors to gRPC status codes and HTTP statuses, and back."""

from __future__ import annotations

import http

import grpc

from suffolk.datastore import errors
from suffolk.datastore.errors import SuffolkError
from suffolk.serving.net.limits import MAX_ERROR_TEXT

STATUS_CODES: dict[type[SuffolkError], tuple[grpc.StatusCode, http.HTTPStatus]] = {
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
    **{code: error for error, (code, _) in STATUS_CODES.items()},
    grpc.StatusCode.CANCELLED: errors.Unavailable,
    grpc.StatusCode.UNAUTHENTICATED: errors.PermissionDenied,
}


def grpc_code(error: SuffolkError) -> grpc.StatusCode:
    return STATUS_CODES[_kind(error)][0]


def http_status(error: SuffolkError) -> http.HTTPStatus:
    return STATUS_CODES[_kind(error)][1]


def error_from_code(code: grpc.StatusCode, *message: str) -> SuffolkError:
    """The error of a status code; Internal for codes that Suffolk's servers do not send."""
    if code in _ERRORS:
        return _ERRORS[code](*message)
    return errors.Internal(*message, f" (gRPC code {code.name})")


def error_text(error: SuffolkError) -> str:
    """The error's message on one line, cut to MAX_ERROR_TEXT characters."""
    return " ".join(str(error).split())[:MAX_ERROR_TEXT]


def _kind(error: SuffolkError) -> type[SuffolkError]:
    return next((kind for kind in STATUS_CODES if isinstance(error, kind)), errors.Internal)
