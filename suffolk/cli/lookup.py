"""Look a text up in a datastore. The output shows the longest ending of the text that occurs, how
often it occurs, what follows it, and in which documents.

STORE is a datastore's folder, or the URL of a draft service, which does not name documents:
grpc://HOST:PORT/NAME, grpcs://HOST:PORT/NAME?ca=FILE or grpc+unix:///PATH#NAME. Only whole tokens
match. The output shows the text's tokens; '|' marks the beginning of the match. A document's id is
what 'suffolk delete --id' takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from suffolk.cli.documents import document_id
from suffolk.cli.lookup_hints import hints
from suffolk.cli.options import setting
from suffolk.cli.options.setting import REQUIRED, argument, option
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, NotFound
from suffolk.datastore.retriever import DEFAULT_MAX_DEPTH, DEFAULT_MAX_MATCH, DEFAULT_MIN_MATCH, MAX_NODES, Retriever
from suffolk.datastore.token_texts import token_texts
from suffolk.serving.drafters.retrieval.limits import Length
from suffolk.serving.engine.checked_fields import ABOVE_0, Within
from suffolk.serving.transport.url import is_url, parse_url

EXAMPLES = """
suffolk lookup STORE "def __init__(self"
suffolk lookup STORE --top 3 --occurrences 20 "raise ValueError("
suffolk lookup STORE --ids 351 4598 42 --json
suffolk lookup grpc://127.0.0.1:7700/code "def __init__(self"
suffolk lookup grpc+unix:///run/suffolk.sock --ids 464 3139 286 --draft --max-nodes 8"""
MAX_SHOWN = 1000
DEADLINE = 5.0
"""Default deadline of a remote call, in seconds. It is long, because no decoding step waits for the call."""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    store: str = argument(REQUIRED, "a datastore's folder, or grpc://HOST:PORT/NAME", metavar="STORE")
    text: str | None = argument(
        None, "the context; only its last --max-match tokens are looked up", metavar="TEXT", blank=True
    )
    ids: tuple[int, ...] = option((), "the context as token ids, in place of TEXT", metavar="ID", several=True)
    max_match: Length = option(DEFAULT_MAX_MATCH, "longest match, in tokens")
    min_match: Length = option(DEFAULT_MIN_MATCH, "shortest match, in tokens")
    max_depth: Length = option(DEFAULT_MAX_DEPTH, "length of continuations, in tokens")
    top: Annotated[int, Within(0, MAX_SHOWN)] = option(8, "number of continuations to show")
    occurrences: Annotated[int, Within(0, MAX_SHOWN)] = option(5, "number of occurrences to show")
    draft: bool = option(False, "show the draft tree that a decoder would get")
    max_nodes: Annotated[int, Within(1, MAX_NODES)] | None = option(
        None, "most nodes of the draft tree (default: 64, or 4 for each continuation)"
    )
    deadline: Annotated[float, Within(ABOVE_0)] | None = option(
        None,
        f"seconds that a call to a draft service may take (default: deadline_ms of the URL, or {DEADLINE:g})",
        metavar="SECONDS",
    )
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> int:
    if (options.text is None) == (not options.ids):
        raise InvalidArgument("give either a text or --ids, for example: suffolk lookup STORE 'import numpy as'")
    store = _open(options)
    try:
        report = _report(store, options)
    finally:
        store.close()
    print(json.dumps(report, indent=2, ensure_ascii=False) if options.json else "\n".join(_lines(report)))
    return 0


def _open(options: Options) -> Retriever:
    if not is_url(options.store):
        if options.deadline is not None:
            raise InvalidArgument(
                f"--deadline {options.deadline:g} has an effect only with a draft service; leave it out"
            )
        return open_datastore(options.store)
    from suffolk.serving.draft_service.client import connect  # loads gRPC

    return connect(options.store, options.deadline or parse_url(options.store).deadline or DEADLINE)


def _report(store: Retriever, options: Options) -> dict[str, Any]:
    # An argument that is not UTF-8 arrives with surrogates, which tokenizers refuse.
    text = (options.text or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    has_text = options.text is not None or _has_tokenizer(store)
    ids = list(options.ids) if options.text is None else _encode(store, text)
    max_nodes = options.max_nodes or max(64, 4 * options.top)
    tree = store.draft(ids, options.max_match, options.min_match, options.max_depth, min(max_nodes, MAX_NODES))
    matched = ids[len(ids) - tree.match_length :]
    is_local = isinstance(store, Datastore)
    report: dict[str, Any] = {
        "context_tokens": len(ids),
        "tokens": token_texts(store, ids[-options.max_match :]) if has_text else [str(each) for each in ids],
        "match_length": tree.match_length,
        "match_count": tree.match_count,
        "match": _text(store, matched, has_text),
        "hints": list(hints(store, text, ids, tree, options.max_match)) if text else [],
        "ends_here": len(tree) == 0,
        "continuations": [
            {"count": count, "share": count / tree.match_count, "ids": path, "text": _text(store, path, has_text)}
            for path, count in _leaves(tree)[: options.top]
        ],
        "occurrences": [],
        "names_documents": is_local,
    }
    if isinstance(store, Datastore) and matched and options.occurrences:
        report["occurrences"] = [
            {
                "id": place.source,
                "metadata": dict(place.metadata),
                "segment": place.segment,
                "document": place.document,
                "offset": place.offset,
                "text": _text(store, place.tokens.tolist(), has_text),
                "shown": document_id(place),
            }
            for place in store.occurrences(matched, options.occurrences)
        ]
    if options.draft:
        from suffolk.serving.draft_service.http_messages import tree_json

        texts = [_text(store, [token], has_text) for token in tree.tokens.tolist()]
        report["draft"] = tree_json(tree) | {"texts": texts}
    return report


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


def _lines(report: dict[str, Any]) -> Iterator[str]:
    tokens, length = [repr(each) for each in report["tokens"]], report["match_length"]
    split = max(0, len(tokens) - length)
    yield f"context       {report['context_tokens']} tokens: {' '.join([*tokens[:split], '|', *tokens[split:]])}"
    if length == 0:
        yield f"no match: none of the last tokens of the context ({report['context_tokens']} in all) occurs"
    else:
        yield f"match length  {length} of {report['context_tokens']} tokens: {report['match']!r}"
        yield f"match count   {report['match_count']:,}"
    yield from (f"hint          {hint}" for hint in report["hints"])
    if length == 0:
        return
    yield "continuations"
    yield from (f"  {item['count']:>10,}  {item['share']:6.1%}  {item['text']!r}" for item in report["continuations"])
    if report["ends_here"]:
        yield "  none: every occurrence is at the end of its document"
    if report["occurrences"]:
        yield f"occurrences   {len(report['occurrences'])} of {report['match_count']:,}, by document id"
        yield from (f"  {item['shown']}, token {item['offset']}: {item['text']!r}" for item in report["occurrences"])
    elif not report["names_documents"]:
        yield "occurrences   not shown: a draft service does not name documents; look the text up in the datastore's folder"
    if "draft" in report:
        yield from _tree_lines(report["draft"])


def _tree_lines(draft: dict[str, Any]) -> Iterator[str]:
    yield f"draft         {len(draft['tokens'])} nodes: estimated acceptance, count, token"
    depths: list[int] = []
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(draft["parents"]):
        depths.append(0 if parent < 0 else depths[parent] + 1)
        children.setdefault(parent, []).append(node)
    pending = children.get(-1, [])[::-1]
    while pending:
        node = pending.pop()
        yield f"  {draft['scores'][node]:5.2f} {draft['counts'][node]:>10,}  {'  ' * depths[node]}{draft['texts'][node]!r}"
        pending += children.get(node, [])[::-1]


def _has_tokenizer(store: Retriever) -> bool:
    """Whether ids can be shown as text. Looking them up needs no tokenizer."""
    return store.tokenizer_path() is not None if isinstance(store, Datastore) else store.tokenizer() is not None


def _text(store: Retriever, ids: list[int], has_text: bool) -> str:
    return store.decode(ids) if has_text else " ".join(map(str, ids))


def _encode(store: Retriever, text: str) -> list[int]:
    if store.tokenizer() is None:
        raise NotFound(f"datastore {store.name} has no tokenizer; give the context as token ids with --ids")
    return store.encode(text)
