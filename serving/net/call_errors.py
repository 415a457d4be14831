"""Error messages for failed calls: the URL, the cause, and what to do. Messages of the server itself pass unchanged."""

from __future__ import annotations

import grpc

from suffolk.datastore.errors import InvalidArgument, SuffolkError
from suffolk.serving.net.error_details import sent_error
from suffolk.serving.net.status import error_from_code

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
"""Beginnings of gRPC's messages about calls that had no connection. Channels have no retries that could have sent them before."""
CLOSED = ("Socket closed", "Connection reset", "Broken pipe", "GOAWAY", "Stream removed")
PLAINTEXT_CLOSED = "the server closed the connection; if it uses TLS, write grpcs://HOST:PORT?ca=FILE"
TLS_CLOSED = "the server closed the connection; if it requires client certificates, add cert=FILE and key=FILE"
CONNECTION_LOST = "the connection was lost; check whether the {server} still runs, and try again"
CANCELLED = "the {server} cancelled the call: it is stopping, or its replies were not read in time; try again"
TOO_LARGE = "a message of this call is larger than the {server} or this client allows; split the call into several"
OTHER_SERVICE = "there is no {server} of this version at this address; correct the port"


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
    """Suffolk's message for gRPC's ``text``, which is all that gRPC says about a cause; None: the text is shown."""
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
