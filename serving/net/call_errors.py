"""Errors of calls: their gRPC codes and HTTP statuses, their form in gRPC, and the messages that clients raise for them."""

from __future__ import annotations

import http
from typing import Any, NoReturn

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from grpc_status import rpc_status

from suffolk.datastore import errors
from suffolk.datastore.errors import Field, InvalidArgument, SuffolkError, Unavailable
from suffolk.serving.net.admission import MAX_RETRY_SECONDS

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
RETRY_KEY = "grpc-retry-pushback-ms"
"""Trailer of a refused gRPC call: milliseconds after which to try again (gRPC proposal A6). HTTP answers have Retry-After."""
DOMAIN = "suffolk"
"""Domain of each ``ErrorInfo``. It shows a client that Suffolk, and not gRPC, ended the call."""
CONNECT_ERRORS = {
    "Connection refused": "nothing listens there; start the {server} or correct the address",
    "No such file or directory": "nothing listens there; start the {server} or correct the address",
    "errors resolving": "unknown host name; correct the address",
    "DNS resolution failed": "unknown host name; correct the address",
    "WRONG_VERSION_NUMBER": "the server does not use TLS; write grpc:// in place of grpcs://, or start the {server} with "
    "--tls-cert and --tls-key",
    "CERTIFICATE_VERIFY_FAILED": "the server's TLS certificate is not from a trusted authority; name the authority's "
    "certificate with ?ca=FILE",
    "Hostname Verification": "the server's TLS certificate is for another host; use a name or address that is in it",
    "parsing HTTP/2": "the server does not speak gRPC; use the {server}'s gRPC port, not its HTTP port",
    "timed out": "the server accepts connections but does not answer; check whether the {server} hangs, or correct the address",
}
"""Part of gRPC's message about a connection attempt -> Suffolk's message."""
NOT_SENT = ("failed to connect to all addresses", "errors resolving", "DNS resolution failed")
"""Beginnings of gRPC's messages about calls that had no connection. Channels do not retry, so these calls were never
sent."""
CLOSED = ("Socket closed", "Connection reset", "Broken pipe", "GOAWAY", "Stream removed")
PLAINTEXT_CLOSED = "the server closed the connection; if it uses TLS, write grpcs://HOST:PORT?ca=FILE"
TLS_CLOSED = "the server closed the connection; if it requires client certificates, add cert=FILE and key=FILE"
CONNECTION_LOST = "the connection was lost; check whether the {server} still runs, and try again"
CANCELLED = "the {server} cancelled the call: it is stopping, or its replies were not read in time; try again"
TOO_LARGE = "a message of this call is larger than the {server} or this client allows; split the call into several"
OTHER_SERVICE = "there is no {server} of this version at this address; correct the port"
MAX_ERROR_TEXT = 1024
"""Characters of an error message on the wire, so that it fits into the trailers of a call."""


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


def retry_seconds(error: Exception) -> float | None:
    """Seconds until the call that ``error`` refused may be tried again; None if the same call would fail again."""
    if isinstance(error, Unavailable):
        return error.retry_seconds or MAX_RETRY_SECONDS
    return error.retry_seconds if isinstance(error, SuffolkError) else None


def retry_trailer(seconds: float | None) -> tuple[tuple[str, str], ...]:
    """The trailing metadata of a refused gRPC call; none without ``seconds``."""
    return () if seconds is None else ((RETRY_KEY, str(round(1000 * seconds))),)


def sent_retry_seconds(metadata: object) -> float | None:
    """The inverse of ``retry_trailer``; None for a missing or malformed trailer."""
    for key, value in metadata or ():  # type: ignore[attr-defined]  # pairs
        if key == RETRY_KEY and isinstance(value, str) and value.isascii() and value.isdigit():
            return int(value) / 1000
    return None


def abort_call(context: grpc.ServicerContext, error: SuffolkError, code: grpc.StatusCode | None = None) -> NoReturn:
    """End a call with ``error``. ``code``: None for the code of the error's class."""
    status = Status(code=(code or grpc_code(error)).value[0], message=error_text(error))
    status.details.add().Pack(ErrorInfo(reason=type(error).__name__, domain=DOMAIN, metadata={"change": error.change}))
    if error.field:
        violation = BadRequest.FieldViolation(field=error.field, description=status.message)
        status.details.add().Pack(BadRequest(field_violations=[violation]))
    sent: Any = rpc_status.to_status(status)
    context.set_trailing_metadata((*sent.trailing_metadata, *retry_trailer(retry_seconds(error))))
    context.abort(sent.code, sent.details)


def sent_error(error: grpc.RpcError, url: str) -> SuffolkError | None:
    """The inverse of ``abort_call``, with ``url`` before the message. None if the call was not ended by a server of Suffolk."""
    try:
        status = rpc_status.from_call(error)  # type: ignore[arg-type]  # it is a Call too
    except ValueError:  # the code in the details differs from the code of the call
        return None
    info, bad = ErrorInfo(), BadRequest()
    for detail in status.details if status else ():
        detail.Unpack(info)
        detail.Unpack(bad)
    if info.domain != DOMAIN:
        return None
    field = next((each.field for each in bad.field_violations), "")
    before, _, after = status.message.partition(field) if field else (status.message, "", "")
    found = error_from_code(error.code(), f"{url}: ", before, Field(field), after)
    found.change = "none" if info.metadata["change"] == "none" else "unknown"
    found.retry_seconds = sent_retry_seconds(error.trailing_metadata())
    return found


def call_error(error: grpc.RpcError, url: str, server: str, late: str) -> SuffolkError:
    """The error to raise for a failed call to ``url``.

    Args:
        server: "draft service" or "worker", for the message.
        late: message if the deadline passed.
    """
    if (sent := sent_error(error, url)) is not None:
        return sent
    code, text = error.code(), error.details() or ""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return error_from_code(code, f"{url}: {late}")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        return InvalidArgument(f"{url}: {TOO_LARGE.format(server=server)} ({text})")
    message = _message(code, text, url.startswith("grpcs:"))
    found = error_from_code(code, f"{url}: {text if message is None else message.format(server=server)}")
    if text.startswith(NOT_SENT):
        found.change = "none"
    return found


def _message(code: grpc.StatusCode, text: str, tls: bool) -> str | None:
    """Suffolk's message for gRPC's ``text``; None if the text itself is to be shown. gRPC describes causes only in this text."""
    if code is grpc.StatusCode.UNIMPLEMENTED and text == "Method not found!":
        return OTHER_SERVICE
    if code is grpc.StatusCode.CANCELLED:
        return CANCELLED
    if code is not grpc.StatusCode.UNAVAILABLE:
        return None
    closed = any(part in text for part in CLOSED)
    if not text.startswith(NOT_SENT):
        return CONNECTION_LOST if closed else None
    for part, message in CONNECT_ERRORS.items():
        if part in text:
            return message
    if not closed:
        return None
    return TLS_CLOSED if tls else PLAINTEXT_CLOSED
