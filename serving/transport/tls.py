"""TLS credentials from PEM files, for the server and for its clients."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A certificate (chain), its private key, and the authority that the other side's certificate must come from.

    On a server an empty ``ca`` admits every client; with one, clients must show a certificate (mTLS). On a client an
    empty ``ca`` means the system's roots, and empty ``cert`` and ``key`` mean that it shows none.
    """

    cert: str = ""
    key: str = ""
    ca: str = ""


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Raises NotFound for a missing file, PermissionDenied for one that may not be read, InvalidArgument for one that is no
    certificate or key, or not a pair."""
    _check(files)
    chain = [(_read(files.key), _read(files.cert))]
    authority = _read(files.ca) if files.ca else None
    return grpc.ssl_server_credentials(chain, authority, require_client_auth=authority is not None)


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """Raises as ``server_credentials``."""
    _check(files)
    return grpc.ssl_channel_credentials(
        _read(files.ca) if files.ca else None,
        _read(files.key) if files.key else None,
        _read(files.cert) if files.cert else None,
    )


def _check(files: TlsFiles) -> None:
    """gRPC takes any bytes and fails at the first handshake; OpenSSL says now what is wrong."""
    for path in (files.cert, files.key, files.ca):
        if path:
            _read(path)  # of files that cannot be read OpenSSL does not say which
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if files.cert or files.key:
            context.load_cert_chain(files.cert, files.key)
        if files.ca:
            context.load_verify_locations(files.ca)
    except OSError as error:  # ssl.SSLError, or the system's for the half of a pair that is not named
        names = ", ".join(name for name in (files.cert, files.key, files.ca) if name)
        reason = getattr(error, "reason", None) or error
        raise InvalidArgument(f"{names}: not a certificate and its key in PEM form: {reason}") from None


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        kind = PermissionDenied if isinstance(error, PermissionError) else NotFound
        raise kind(f"{path}: cannot read the TLS file: {error.strerror}") from None
