"""TLS credentials from PEM files."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: a certificate chain, its private key, and the authority of the peer's certificate.

    On a server, ``ca`` turns on mTLS: clients must present a certificate from that authority. On a client, an empty
    ``ca`` means the system's roots, and ``cert`` and ``key`` are the client's own certificate, if it has one.
    """

    cert: str = ""
    key: str = ""
    ca: str = ""


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Credentials of a server.

    Raises:
        NotFound, PermissionDenied: a file is missing, or not readable.
        InvalidArgument: a file is not a certificate or key, or certificate and key do not match.
    """
    _check(files)
    chain = [(_read(files.key), _read(files.cert))]
    authority = _read(files.ca) if files.ca else None
    return grpc.ssl_server_credentials(chain, authority, require_client_auth=authority is not None)


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """Credentials of a client. Raises the same errors as ``server_credentials``."""
    _check(files)
    authority, key, chain = (_read(path) if path else None for path in (files.ca, files.key, files.cert))
    return grpc.ssl_channel_credentials(authority, key, chain)


def _check(files: TlsFiles) -> None:
    """Parse the files with OpenSSL, because gRPC accepts any bytes and fails only at the first handshake."""
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
        return Path(path).read_bytes()
    except OSError as error:
        kind = PermissionDenied if isinstance(error, PermissionError) else NotFound
        raise kind(f"{path}: cannot read the TLS file: {error.strerror}") from None
