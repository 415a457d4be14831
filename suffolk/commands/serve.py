"""Serve datastores to decoding workers: gRPC suffolk.v1.DraftService, and HTTP/JSON with metrics on a second port.

Prints one line when it takes requests: serving NAME,NAME on grpc HOST:PORT, http HOST:PORT. SIGTERM or Ctrl-C lets the
requests in flight finish and ends with 0; a second one ends at once."""

from __future__ import annotations

import argparse
import contextlib
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from datastore.datastore import RESIDENCIES, open_datastore
from datastore.errors import InvalidArgument
from datastore.retriever import Retriever
from serving.draft_service.endpoint import parse_endpoint
from serving.draft_service.server import DraftServer, ServerConfig, run_until_signal
from serving.draft_service.tls import TlsFiles

EPILOG = """examples:
  suffolk serve wiki/                                         gRPC on 127.0.0.1:7700, HTTP on 127.0.0.1:7701
  suffolk serve code=/data/code-v3 wiki/ --listen unix:/run/suffolk.sock --residency warm
  suffolk serve wiki/ --listen 0.0.0.0:7700 --tls-cert server.pem --tls-key server.key --tls-client-ca clients.pem
  curl -d '{"contexts": [[1, 2, 3]]}' http://127.0.0.1:7701/v1/draft"""

NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "stores", nargs="+", metavar="[NAME=]STORE", help="a datastore's folder; NAME defaults to the folder's name"
    )
    parser.add_argument(
        "--residency",
        choices=RESIDENCIES,
        default="mmap",
        help="mmap: pages come in as queries touch them; warm: read all files in meanwhile; locked: read all in first and "
        "keep them (default: %(default)s)",
    )
    add_server_arguments(parser)


def add_server_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say how to serve, whatever is served."""
    parser.add_argument(
        "--listen",
        action="append",
        metavar="ENDPOINT",
        help="HOST:PORT or unix:PATH for gRPC; may be repeated; port 0 takes a free one (default: 127.0.0.1:7700)",
    )
    parser.add_argument(
        "--http",
        default="127.0.0.1:7701",
        metavar="HOST:PORT",
        help="HTTP/JSON and /metrics; 'off' for none (default: %(default)s)",
    )
    parser.add_argument(
        "--max-concurrent",
        type=int,
        default=32,
        metavar="N",
        help="refuse more requests at a time (default: %(default)s)",
    )
    parser.add_argument(
        "--grace",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="for requests in flight when stopping (default: %(default)s)",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="PEM certificate: encrypt gRPC over TCP")
    parser.add_argument("--tls-key", metavar="FILE", help="PEM private key of --tls-cert")
    parser.add_argument(
        "--tls-client-ca", metavar="FILE", help="PEM authority that clients' certificates must come from (mTLS)"
    )
    parser.add_argument(
        "--insecure", action="store_true", help="allow plaintext on addresses that other machines can reach"
    )


def run(args: argparse.Namespace) -> int:
    config = read_config(args)
    with contextlib.ExitStack() as stack:
        stores: dict[str, Retriever] = {}
        for name, path in parse_stores(args.stores).items():
            stores[name] = open_datastore(path, args.residency)
            stack.callback(stores[name].close)
        return serve(config, stores)


def serve(config: ServerConfig, stores: Mapping[str, Retriever]) -> int:
    """Serve until a signal says stop; returns 0."""
    logging.basicConfig(format="suffolk: %(message)s", level=logging.INFO)
    run_until_signal(DraftServer(config, stores))
    return 0


def read_config(args: argparse.Namespace) -> ServerConfig:
    """The server's settings from the command line; InvalidArgument if they make no sense together."""
    if bool(args.tls_cert) != bool(args.tls_key):
        raise InvalidArgument("--tls-cert and --tls-key belong together; give both or neither")
    if args.tls_client_ca and not args.tls_cert:
        raise InvalidArgument("--tls-client-ca needs --tls-cert and --tls-key")
    return ServerConfig(
        listen=tuple(parse_endpoint(text, "--listen") for text in args.listen or ["127.0.0.1:7700"]),
        http=None if args.http == "off" else parse_endpoint(args.http, "--http"),
        max_concurrent=args.max_concurrent,
        grace=args.grace,
        tls=TlsFiles(args.tls_cert, args.tls_key, args.tls_client_ca or "") if args.tls_cert else None,
        insecure=args.insecure,
    )


def parse_stores(texts: Sequence[str]) -> dict[str, str]:
    """NAME=PATH or PATH -> name and path; InvalidArgument for a name that is taken or would not fit a URL."""
    stores: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals:
            name, path = Path(text).resolve().name, text
        if not NAME.fullmatch(name):
            raise InvalidArgument(
                f"{text}: {name!r} cannot name a datastore; write NAME=PATH with letters, digits, '.', '_' and '-'"
            )
        if name in stores:
            raise InvalidArgument(
                f"{text}: {stores[name]} has the name {name!r} already; write NAME=PATH to give another"
            )
        stores[name] = path
    return stores
