"""The options that say how to serve, whatever is served."""

from __future__ import annotations

import argparse
from typing import Any

from suffolk.cli.filled import filled
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.transport.endpoint import parse_endpoint
from suffolk.serving.transport.tls import TlsFiles


def add_server_options(parser: argparse.ArgumentParser, port: int, pages: str, grace: float) -> None:
    """Declare them.

    Args:
        port: where gRPC listens on loopback by default; HTTP takes the next one.
        pages: what HTTP gives.
        grace: seconds for requests in flight when stopping.
    """
    parser.add_argument(
        "--listen",
        action="append",
        metavar="ENDPOINT",
        help=f"HOST:PORT or unix:PATH for gRPC; may be repeated; port 0 takes a free one (default: 127.0.0.1:{port})",
    )
    parser.add_argument(
        "--http",
        default=f"127.0.0.1:{port + 1}",
        metavar="HOST:PORT",
        help=f"{pages}; 'off' for none (default: %(default)s)",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=grace,
        metavar="SECONDS",
        help="for requests in flight when stopping (default: %(default)s)",
    )
    parser.add_argument("--tls-cert", type=filled, metavar="FILE", help="PEM certificate: encrypt gRPC over TCP")
    parser.add_argument("--tls-key", type=filled, metavar="FILE", help="PEM private key of --tls-cert")
    parser.add_argument(
        "--tls-client-ca",
        type=filled,
        metavar="FILE",
        help="PEM authority that clients' certificates must come from (mTLS)",
    )
    parser.add_argument(
        "--insecure", action="store_true", help="allow plaintext on addresses that other machines can reach"
    )


def read_server_options(args: argparse.Namespace, port: int) -> dict[str, Any]:
    """The fields of a ``ServerConfig``; InvalidArgument if they make no sense together."""
    if bool(args.tls_cert) != bool(args.tls_key):
        raise InvalidArgument("--tls-cert and --tls-key belong together; give both or neither")
    if args.tls_client_ca and not args.tls_cert:
        raise InvalidArgument("--tls-client-ca needs --tls-cert and --tls-key")
    return {
        "listen": tuple(parse_endpoint(text, "--listen") for text in args.listen or [f"127.0.0.1:{port}"]),
        "http": None if args.http == "off" else parse_endpoint(args.http, "--http"),
        "grace": args.grace,
        "tls": TlsFiles(args.tls_cert, args.tls_key, args.tls_client_ca or "") if args.tls_cert else None,
        "insecure": args.insecure,
    }
