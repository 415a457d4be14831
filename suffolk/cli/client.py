"""Ask a draft service; prints JSON."""

from __future__ import annotations

import argparse
import json

from suffolk.cli.filled import filled
from suffolk.datastore import retriever
from suffolk.datastore.errors import InvalidArgument
from suffolk.serving.draft_service.client import connect
from suffolk.serving.draft_service.http_calls import tree_json
from suffolk.serving.transport.url import parse_url

DEADLINE = 5.0
"""Seconds for a lookup or draft, where neither an option nor the URL says: nobody decodes meanwhile."""

EPILOG = """info prints the datastore's facts; lookup how much of the context's end occurs, and how often; draft what follows it,
as a tree.

URL is grpc://HOST:PORT/NAME, grpcs://HOST:PORT/NAME?ca=FILE or grpc+unix:///PATH#NAME; without :PORT, 7700 is meant.

examples:
  suffolk client grpc://127.0.0.1:7700/wiki info
  suffolk client grpc://127.0.0.1:7700/wiki lookup 464 3139 286
  suffolk client grpc+unix:///run/suffolk.sock draft 464 3139 286 --max-nodes 8"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("url", type=filled, metavar="URL", help="where the datastore is served")
    parser.add_argument("action", choices=("info", "lookup", "draft"), help="what to ask for; see below")
    parser.add_argument("ids", nargs="*", type=int, metavar="ID", help="token ids of the context, oldest first")
    parser.add_argument(
        "--max-match",
        type=int,
        default=retriever.DEFAULT_MAX_MATCH,
        metavar="N",
        help="longest match, in tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--min-match",
        type=int,
        default=retriever.DEFAULT_MIN_MATCH,
        metavar="N",
        help="shortest match, in tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--max-depth",
        type=int,
        default=retriever.DEFAULT_MAX_DEPTH,
        metavar="N",
        help="depth of a draft, in tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--max-nodes",
        type=int,
        default=retriever.DEFAULT_MAX_NODES,
        metavar="N",
        help="largest draft, in tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        metavar="SECONDS",
        help=f"for a lookup or draft (default: deadline_ms of the URL, else {DEADLINE:g} s)",
    )


def run(args: argparse.Namespace) -> int:
    if args.action == "info" and args.ids:
        raise InvalidArgument(
            f"info takes no token ids and was given {len(args.ids)}; leave them out, or ask for lookup or draft"
        )
    if args.action != "info" and not args.ids:
        raise InvalidArgument(
            f"{args.action} needs a context; give its token ids, for example: {args.action} 464 3139 286"
        )
    deadline = args.deadline
    if deadline is None:
        deadline = parse_url(args.url).deadline or DEADLINE
    store = connect(args.url, deadline)
    try:
        if args.action == "info":
            answer = store.info()
        elif args.action == "lookup":
            answer = store.lookup(args.ids, args.max_match, args.min_match)._asdict()
        else:
            answer = tree_json(store.draft(args.ids, args.max_match, args.min_match, args.max_depth, args.max_nodes))
    finally:
        store.close()
    print(json.dumps(answer))
    return 0
