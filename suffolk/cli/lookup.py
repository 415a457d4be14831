"""Look a text up: how much of its end occurs, how often, what follows it, and where the occurrences come from."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tokenizers import Tokenizer

from suffolk.cli.filled import filled
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.serving.drafters.retrieval.limits import Limits
from suffolk.serving.transport.url import is_url

MAX_SHOWN = 1000
EPILOG = """examples:
  suffolk lookup STORE "def __init__(self"
  suffolk lookup STORE --top 3 --occurrences 20 "raise ValueError("
  suffolk lookup STORE --ids 351 4598 42 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("store", type=filled, metavar="STORE", help="a datastore's folder")
    parser.add_argument("text", nargs="?", metavar="TEXT", help="the context; only its last --max-match tokens count")
    parser.add_argument("--ids", nargs="+", type=int, metavar="ID", help="the context as token ids, instead of text")
    parser.add_argument(
        "--max-match", type=int, default=16, metavar="N", help="longest match, in tokens (default: %(default)s)"
    )
    parser.add_argument(
        "--min-match", type=int, default=1, metavar="N", help="shortest match, in tokens (default: %(default)s)"
    )
    parser.add_argument(
        "--max-depth",
        type=int,
        default=10,
        metavar="N",
        help="length of continuations, in tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--top", type=int, default=8, metavar="N", help="how many continuations to show (default: %(default)s)"
    )
    parser.add_argument(
        "--occurrences", type=int, default=5, metavar="N", help="how many places to show (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    if (args.text is None) == (args.ids is None):
        raise InvalidArgument("give either a text or --ids, for example: suffolk lookup STORE 'import numpy as'")
    if is_url(args.store):
        raise InvalidArgument(f"{args.store}: lookup needs the datastore's folder; ask a service with 'suffolk client'")
    for name in ("top", "occurrences"):
        if not 0 <= getattr(args, name) <= MAX_SHOWN:
            raise InvalidArgument(f"--{name} is {getattr(args, name)}; it must be 0 to {MAX_SHOWN}")
    Limits(args.max_match, args.min_match, args.max_depth)  # refuse what the core's numbers do not hold
    with open_datastore(args.store) as store:
        lost = store.tokenizer_path() is None  # ids are looked up, and shown, without it
        tokenizer = None if lost and args.ids is not None else store.tokenizer()
        ids = _encode(store, tokenizer, args.text) if args.ids is None else args.ids
        report = _report(store, tokenizer, ids, args)
    print(json.dumps(report, indent=2, ensure_ascii=False) if args.json else "\n".join(_lines(report)))
    return 0


def _report(store: Datastore, tokenizer: Tokenizer | None, ids: list[int], args: argparse.Namespace) -> dict[str, Any]:
    tree = store.draft(ids, args.max_match, args.min_match, args.max_depth, max_nodes=max(64, 4 * args.top))
    matched = ids[len(ids) - tree.match_length :]
    places = store.occurrences(matched, args.occurrences) if matched and args.occurrences else []
    return {
        "context_tokens": len(ids),
        "match_length": tree.match_length,
        "match_count": tree.match_count,
        "match": _text(tokenizer, matched),
        "ends_here": len(tree) == 0,
        "continuations": [
            {"count": count, "share": count / tree.match_count, "ids": path, "text": _text(tokenizer, path)}
            for path, count in _leaves(tree)[: args.top]
        ],
        "occurrences": [
            {
                "source": place.source,
                "metadata": dict(place.metadata),
                "segment": place.segment,
                "document": place.document,
                "offset": place.offset,
                "text": _text(tokenizer, place.tokens.tolist()),
            }
            for place in places
        ],
    }


def _leaves(tree: DraftTree) -> list[tuple[list[int], int]]:
    """(path, count) of the tree's leaves, most frequent first."""
    assert tree.counts is not None
    tokens, parents = tree.tokens.tolist(), tree.parents.tolist()
    leaves = []
    for node in sorted(set(range(len(tree))) - set(parents)):
        path: list[int] = []
        at = node
        while at >= 0:
            path.append(tokens[at])
            at = parents[at]
        leaves.append((path[::-1], int(tree.counts[node])))
    return sorted(leaves, key=lambda leaf: -leaf[1])


def _lines(report: dict[str, Any]) -> list[str]:
    if report["match_length"] == 0:
        return [f"no match: none of the last tokens of the context ({report['context_tokens']} in all) occurs"]
    lines = [
        f"match length  {report['match_length']} of {report['context_tokens']} tokens: {report['match']!r}",
        f"match count   {report['match_count']:,}",
        "continuations",
    ]
    lines += [f"  {item['count']:>10,}  {item['share']:6.1%}  {item['text']!r}" for item in report["continuations"]]
    if report["ends_here"]:
        lines.append("  none: every occurrence ends its document")
    if report["occurrences"]:
        lines.append(f"occurrences   {len(report['occurrences'])} of {report['match_count']:,}")
        lines += [
            f"  {item['source'] or item['segment']}{_described(item['metadata'])}, token {item['offset']}: {item['text']!r}"
            for item in report["occurrences"]
        ]
    return lines


def _described(metadata: dict[str, Any]) -> str:
    return f" ({', '.join(f'{name}={value}' for name, value in metadata.items())})" if metadata else ""


def _text(tokenizer: Tokenizer | None, ids: list[int]) -> str:
    return " ".join(map(str, ids)) if tokenizer is None else str(tokenizer.decode(ids, skip_special_tokens=False))


def _encode(store: Datastore, tokenizer: Tokenizer | None, text: str) -> list[int]:
    if tokenizer is None:
        raise NotFound(f"{store.path} has no tokenizer; give the context as token ids with --ids")
    # An argument that is no UTF-8 arrives with surrogates, which tokenizers refuse.
    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return list(tokenizer.encode(readable, add_special_tokens=False).ids)
