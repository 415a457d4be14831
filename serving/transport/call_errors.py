"""What went wrong with a call, in words of our own: where, and what to do. A server's own message is passed on as it is."""

from __future__ import annotations

import grpc

from suffolk.datastore.errors import SuffolkError
from suffolk.serving.transport.status import error_of

UNREACHED = (
    (
        ("Connection refused", "No such file or directory"),
        "nothing listens there; start the {server} or correct the address",
    ),
    (("errors resolving", "DNS resolution failed"), "there is no host of that name; correct the address"),
    (
        ("WRONG_VERSION_NUMBER",),
        "what listens there speaks no TLS; write grpc:// in place of grpcs://, or start the {server} with --tls-cert and --tls-key",
    ),
    (
        ("CERTIFICATE_VERIFY_FAILED",),
        "its TLS certificate is from no authority that is trusted here; name the authority's certificate with ?ca=FILE",
    ),
    (("Hostname Verification",), "its TLS certificate is another host's; write the name or address that is in it"),
    (("parsing HTTP/2",), "what listens there speaks no gRPC; give the {server}'s gRPC port, not its HTTP port"),
    (
        ("timed out",),
        "it takes connections and does not answer; see whether the {server} hangs, or correct the address",
    ),
)
"""Parts of gRPC's own text about a connection that never was, and what we say of it."""
PLAINTEXT_CLOSED = "it closed the connection at once; if it speaks TLS, write grpcs://HOST:PORT?ca=FILE"
TLS_CLOSED = "it closed the connection at once; if it wants a certificate of its callers, add cert=FILE and key=FILE"
CLOSED = ("Socket closed", "Connection reset", "Broken pipe", "GOAWAY", "Stream removed")
LOST = "the connection broke off; see whether the {server} still runs, and try again"
HUNG_UP = "the {server} ended the call: it is stopping, or its replies were not read for long; try again"
OTHER_SERVICE = "what listens there is no {server}, nor of this version; correct the port"


def call_error(error: grpc.RpcError, url: str, server: str, late: str) -> SuffolkError:
    """The error to raise for a call to ``url``.

    Args:
        server: what should answer: "draft service" or "worker".
        late: what to say when the deadline has passed.
    """
    code, text = error.code(), error.details() or ""
    words = late if code is grpc.StatusCode.DEADLINE_EXCEEDED else _words(code, text, url.startswith("grpcs:"))
    return error_of(code, f"{url}: {text if words is None else words.format(server=server)}")


def _words(code: grpc.StatusCode, text: str, tls: bool) -> str | None:
    """Ours for ``text`` if it is gRPC's own; None for what a server said."""
    if code is grpc.StatusCode.UNIMPLEMENTED and text == "Method not found!":
        return OTHER_SERVICE
    if code is grpc.StatusCode.CANCELLED:
        return HUNG_UP
    if code is not grpc.StatusCode.UNAVAILABLE:
        return None
    closed = any(part in text for part in CLOSED)
    if not text.startswith(("failed to connect to all addresses", "errors resolving", "DNS resolution failed")):
        return LOST if closed else None
    for parts, words in UNREACHED:
        if any(part in text for part in parts):
            return words
    if closed:
        return TLS_CLOSED if tls else PLAINTEXT_CLOSED
    return None
