"""TLS credentials from PEM files."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied
from suffolk.datastore.files import read_bounded


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: a certificate chain, its private key, and the authority of the peer's certificate.

    On a server, ``ca`` turns on mTLS: clients must present a certificate from that authority. On a client, an empty
    ``ca`` means the system's roots, and ``cert`` and ``key`` are the client's own certificate, if it has one.
    """

    cert: str = ""
    key: str = ""
    ca: str = ""


class ServerTls:
    """The certificates of a server, for gRPC and HTTP. Thread-safe.

    ``reload`` reads the files again. Existing connections keep their certificates.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Raises the errors of ``reload``."""
        self.files = files
        self.reload()

    def reload(self) -> None:
        """Use the files as they are now for all later connections. After an error, the former content stays in use.

        Raises:
            NotFound, PermissionDenied: a file is missing, or not readable.
            InvalidArgument: a file is not a certificate or key, or certificate and key do not match.
        """
        check_files(self.files)
        authority = _read(self.files.ca) if self.files.ca else None
        chain = [(_read(self.files.key), _read(self.files.cert))]
        self._context = self._make_context()
        self._grpc = grpc.ssl_server_certificate_configuration(chain, authority)

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Credentials of one gRPC endpoint. Each endpoint needs its own."""
        latest: Any = self._latest()  # the type stub omits None, which means no change
        return grpc.dynamic_ssl_server_credentials(self._grpc, latest, bool(self.files.ca))

    def http_context(self) -> ssl.SSLContext:
        """The context of an HTTP endpoint."""
        context = self._make_context()
        context.options |= ssl.OP_NO_TICKET  # a resumed session would skip the check of the client's certificate
        context.num_tickets = 0
        context.sni_callback = self._enter
        return context

    def _latest(self) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
        """A function that gRPC calls for each connection: the configuration, or None if it has not changed."""
        used = self._grpc

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal used
            if self._grpc is used:
                return None
            used = self._grpc
            return used

        return fetch

    def _enter(self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> None:
        """Use the newest certificates. OpenSSL calls this for each connection, even if the client names no server."""
        connection.context = self._context

    def _make_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.files.cert, self.files.key)
        if self.files.ca:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.files.ca)
        return context


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """Credentials of a client. Raises the same errors as ``ServerTls.reload``."""
    check_files(files)
    authority, key, chain = (_read(path) if path else None for path in (files.ca, files.key, files.cert))
    return grpc.ssl_channel_credentials(authority, key, chain)


def check_files(files: TlsFiles) -> None:
    """Parse the files with OpenSSL, because gRPC accepts any bytes and fails only at the first handshake.

    Raises the errors of ``ServerTls.reload``.
    """
    paths = [path for path in (files.cert, files.key, files.ca) if path]
    for path in paths:
        _read(path)  # OpenSSL does not name a file that it cannot read
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if files.cert or files.key:
            context.load_cert_chain(files.cert, files.key)
        if files.ca:
            context.load_verify_locations(files.ca)
    except OSError as error:  # ssl.SSLError, or FileNotFoundError for an empty ``cert`` or ``key``
        reason = getattr(error, "reason", None) or error
        raise InvalidArgument(f"{', '.join(paths)}: not a certificate and its key in PEM form: {reason}") from None


def _read(path: str) -> bytes:
    try:
        return read_bounded(path)
    except OSError as error:
        kind = PermissionDenied if isinstance(error, PermissionError) else NotFound
        raise kind(f"{path}: cannot read the TLS file: {error.strerror}; correct its path or permissions") from None
