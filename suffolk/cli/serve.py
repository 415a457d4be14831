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

from suffolk.cli.filled import filled
from suffolk.cli.server_options import add_server_options, read_server_options
from suffolk.datastore.datastore import RESIDENCIES, open_datastore
from suffolk.datastore.errors import InvalidArgument
from suffolk.datastore.retriever import Retriever
from suffolk.serving.draft_service.server import DraftServer, DraftServerConfig
from suffolk.serving.transport.server import run_until_signal
from suffolk.serving.transport.url import DRAFT_PORT

EPILOG = """examples:
  suffolk serve wiki/                                         gRPC on 127.0.0.1:7700, HTTP on 127.0.0.1:7701
  suffolk serve code=/data/code-v3 wiki/ --listen unix:/run/suffolk.sock --residency warm
  suffolk serve wiki/ --listen 0.0.0.0:7700 --tls-cert server.pem --tls-key server.key --tls-client-ca clients.pem
  curl -d '{"contexts": [[1, 2, 3]]}' http://127.0.0.1:7701/v1/draft"""

NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument(
        "stores",
        nargs="+",
        type=filled,
        metavar="[NAME=]STORE",
        help="a datastore's folder; NAME defaults to the folder's name",
    )
    parser.add_argument(
        "--residency",
        choices=RESIDENCIES,
        default="auto",
        help="mmap: pages come in as queries touch them; warm: read all files in meanwhile; auto: that, if they take a quarter "
        "of the memory that is left at most; locked: read all in first and keep them (default: %(default)s)",
    )
    parser.add_argument(
        "--search-threads",
        type=int,
        default=0,
        metavar="N",
        help="threads that share the contexts of one request, for each datastore (default: every core)",
    )
    parser.add_argument(
        "--max-concurrent",
        type=int,
        default=32,
        metavar="N",
        help="refuse more requests at a time (default: %(default)s)",
    )
    add_server_options(parser, DRAFT_PORT, "HTTP/JSON and /metrics", grace=5.0)


def run(args: argparse.Namespace) -> int:
    config = read_config(args)
    with contextlib.ExitStack() as stack:
        stores: dict[str, Retriever] = {}
        for name, path in parse_stores(args.stores).items():
            stores[name] = open_datastore(path, args.residency, args.search_threads)
            stack.callback(stores[name].close)
        return serve(config, stores)


def serve(config: DraftServerConfig, stores: Mapping[str, Retriever]) -> int:
    """Serve until a signal says stop; returns 0."""
    logging.basicConfig(format="suffolk: %(message)s", level=logging.INFO)
    run_until_signal(DraftServer(config, stores))
    return 0


def read_config(args: argparse.Namespace) -> DraftServerConfig:
    """The server's settings from the command line; InvalidArgument if they make no sense together."""
    return DraftServerConfig(**read_server_options(args, DRAFT_PORT), max_concurrent=args.max_concurrent)


def parse_stores(texts: Sequence[str]) -> dict[str, str]:
    """NAME=PATH or PATH -> name and path; InvalidArgument for a name that is taken or would not fit a URL."""
    stores: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals:
            name, path = Path(text).resolve().name, text
        if not path:
            raise InvalidArgument(f"{text}: there is no folder behind '='; write NAME=PATH")
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
