"""Look a text up in a datastore. The output shows the longest ending of the text that occurs, how
often it occurs, what follows it, and in which documents.

STORE is a datastore's folder, or the URL of a draft service: grpc://HOST:PORT/NAME,
grpcs://HOST:PORT/NAME?ca=FILE or grpc+unix:///PATH#NAME. NAME,NAME searches several as one, and
shows how often each of them holds a continuation. Only whole tokens match. The output shows the
text's tokens; '|' marks the beginning of the match. Continuations are a tree with the count of each
branch. On a terminal its lines are cut to the width. A document's id is what 'suffolk delete --id'
takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any

from suffolk.build_index.report import count
from suffolk.cli.lookup_lines import shown
from suffolk.cli.options import setting
from suffolk.cli.store_lines import document_id
from suffolk.datastore.checks import ABOVE_0
from suffolk.datastore.context_query import DEFAULT_MAX_DEPTH, DEFAULT_MAX_MATCH, DEFAULT_MIN_MATCH
from suffolk.datastore.datastore import Datastore, open_datastore
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import InvalidArgument, NotFound, PermissionDenied, Unsupported
from suffolk.datastore.merged import MergedDatastore
from suffolk.datastore.retriever import MAX_NODES, Retriever
from suffolk.datastore.settings import REQUIRED, Within, argument, option
from suffolk.datastore.tokenizer import node_texts, token_texts, window_texts
from suffolk.datastore.tree_paths import path_counts, tree_paths
from suffolk.serving.decoding.drafters.retrieval.limits import Length, Limits
from suffolk.serving.net.messages.choices import merge_urls
from suffolk.serving.net.url import is_remote
from suffolk.serving.open_store import connect_any

EXAMPLES = """
suffolk lookup STORE "def __init__(self"
suffolk lookup STORE --top 3 --occurrences 20 "raise ValueError("
suffolk lookup STORE --ids 351 4598 42 --json
suffolk lookup code/ --also wiki/ "the list of"
suffolk lookup grpc://127.0.0.1:7700/code "def __init__(self"
suffolk lookup grpc+unix:///run/suffolk.sock --ids 464 3139 286 --draft --max-nodes 8"""
MAX_SHOWN = 1000
DEADLINE = 5.0
"""Default deadline of a remote call, in seconds. It is long, because no decoding step waits for the call."""
BEFORE = 8
"""Number of tokens shown before an occurrence."""
MOST = 3
"""The most tokens that a hint names."""


@dataclass(frozen=True, kw_only=True)
class Options(setting.Options):
    store: str = argument(REQUIRED, "a datastore's folder, or grpc://HOST:PORT/NAME", metavar="STORE")
    also: tuple[str, ...] = option(
        (), "another datastore, which is searched together with STORE; may be repeated", metavar="STORE"
    )
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
        None, "the most nodes of the draft tree (default: 64, or 4 for each continuation if that is more)"
    )
    deadline: Annotated[float, Within(ABOVE_0)] | None = option(
        None,
        f"seconds that a call to a draft service may take (default: deadline_ms of the URL, or {DEADLINE:g})",
        metavar="SECONDS",
    )
    json: bool = option(False, "print one JSON object")


def run(options: Options) -> None:
    if (options.text is None) == (not options.ids):
        raise InvalidArgument("give either a text or --ids, for example: suffolk lookup STORE 'import numpy as'")
    if options.text == "":
        raise InvalidArgument("TEXT: it is empty; give a text, for example: suffolk lookup STORE 'import numpy as'")
    with ExitStack() as stack:
        report = make_report(_open(options, stack), options)
    text = json.dumps(report, indent=2, ensure_ascii=False) if options.json else shown(report, options.draft)
    print(text)


def _open(options: Options, stack: ExitStack) -> Retriever:
    """Open the datastores of ``options`` as one datastore, until ``stack`` is closed."""
    names = merge_urls([options.store, *options.also])
    if options.deadline is not None and not any(map(is_remote, names)):
        raise InvalidArgument(f"--deadline {options.deadline:g} has an effect only with a draft service; leave it out")
    stores = [_open_one(name, options.deadline) for name in names]
    for store in stores:
        stack.callback(store.close)
    if len(stores) == 1:
        return stores[0]
    short = [store.name for store in stores]
    return MergedDatastore(dict(zip(short if len(set(short)) == len(short) else names, stores, strict=True)))


def _open_one(name: str, deadline: float | None) -> Retriever:
    if not is_remote(name):
        return open_datastore(name)
    return connect_any(name, deadline or (None if "deadline_ms=" in name else DEADLINE))


def make_report(store: Retriever, options: Options) -> dict[str, Any]:
    """Look the context of ``options`` up in ``store``.

    Raises:
        NotFound: a text is given, and the datastore has no tokenizer.
        SuffolkError: as ``Retriever.draft``.
    """
    # An argument that is not UTF-8 arrives with surrogates, which tokenizers refuse.
    text = (options.text or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    has_text = options.text is not None or _has_tokenizer(store)
    ids = list(options.ids) if options.text is None else _encode(store, text)
    limits = Limits(options.max_match, options.min_match, options.max_depth)  # its errors name the options
    limits.require_within(int(store.info()["order_depth"]))
    max_nodes = options.max_nodes or max(64, 4 * options.top)
    tree = store.draft(ids, options.max_match, options.min_match, options.max_depth, min(max_nodes, MAX_NODES))
    matched, last = ids[len(ids) - tree.match_length :], ids[-options.max_match :]
    report: dict[str, Any] = {
        "context_tokens": len(ids),
        "tokens": token_texts(store, last) if has_text else [str(each) for each in last],
        "match_length": tree.match_length,
        "match_count": tree.match_count,
        "partial": tree.partial,
        "match": _text(store, matched, has_text),
        "hints": list(hints(store, text, ids, tree, options.max_match)) if text else [],
        "ends_here": len(tree) == 0,
        "continuations": _continuations(store, tree, options.top, has_text),
        "draft": _tree(store, matched, tree, has_text),
    }
    return report | _occurrences(store, matched, options.occurrences, has_text)


def _continuations(store: Retriever, tree: DraftTree, top: int, has_text: bool) -> list[dict[str, Any]]:
    """The paths to the tree's leaves, most frequent first."""
    assert tree.counts is not None
    counts, paths = tree.counts.tolist(), tree_paths(tree)
    leaves = sorted(set(range(len(tree))) - set(tree.parents.tolist()), key=lambda leaf: (-counts[leaf], leaf))
    return [
        {
            "count": counts[leaf],
            "share": counts[leaf] / tree.match_count,
            "ids": paths[leaf],
            "text": _text(store, paths[leaf], has_text),
            "node": leaf,
        }
        for leaf in leaves[:top]
    ]


def _tree(store: Retriever, matched: list[int], tree: DraftTree, has_text: bool) -> dict[str, Any]:
    from suffolk.serving.store.draft_service.http_messages import tree_json

    texts = node_texts(store, matched, tree) if has_text else [str(token) for token in tree.tokens.tolist()]
    names = store.names if len(store.names) > 1 else ()
    paths = tree_paths(tree)
    counts = {name: path_counts(store.select([name]), matched, paths) for name in names}
    return tree_json(tree) | {"texts": texts, "datastores": counts}


def _occurrences(store: Retriever, matched: list[int], limit: int, has_text: bool) -> dict[str, Any]:
    try:
        found = store.occurrences(matched, limit, before=BEFORE) if matched and limit else []
    except (PermissionDenied, Unsupported) as error:  # raised by a draft service
        return {"occurrences": [], "names_documents": False, "occurrences_problem": str(error)}
    places = [
        place.facts()
        | {
            "text": _text(store, place.tokens.tolist(), has_text),
            "parts": window_texts(store, place, len(matched)) if has_text else _window_ids(place, len(matched)),
            "shown": document_id(place),
        }
        for place in found
    ]
    return {"occurrences": places, "names_documents": True}


def _has_tokenizer(store: Retriever) -> bool:
    """Whether ids can be shown as text. A lookup of ids needs no tokenizer."""
    return store.tokenizer_path() is not None if isinstance(store, Datastore) else store.tokenizer() is not None


def _encode(store: Retriever, text: str) -> list[int]:
    if store.tokenizer() is None:
        raise NotFound(f"datastore {store.name} has no tokenizer; give the context as token ids with --ids")
    return store.encode(text)


def _window_ids(place: Occurrence, pattern: int) -> tuple[str, ...]:
    parts = place.before, place.tokens[:pattern], place.tokens[pattern:]
    return tuple(" ".join(map(str, ids.tolist())) for ids in parts)


def _text(store: Retriever, ids: list[int], has_text: bool) -> str:
    return store.decode(ids) if has_text else " ".join(map(str, ids))


def hints(store: Retriever, text: str, ids: Sequence[int], found: DraftTree, max_match: int) -> Iterator[str]:
    """Advice on how to write ``text`` so that more of it matches, or more often. ``found``: its longest match."""
    if len(ids) < 2:
        return
    yield from _end(store, ids, found, max_match)
    if found.match_length >= min(len(ids), max_match):
        return
    spaced = store.encode(f" {text}")
    other = store.lookup(spaced, max_match)
    if not text[:1].isspace() and other.length >= min(len(spaced), max_match) > found.match_length:
        yield (
            f"with a space in front, all {other.length} tokens match, {count(other.count, 'time')}: "
            "after a space, most words have other tokens than at the start of a text"
        )


def _end(store: Retriever, ids: Sequence[int], found: DraftTree, max_match: int) -> Iterator[str]:
    """Yield a hint if ``ids`` end inside a token.

    A longer last token must give a longer or more frequent match than ``found``.
    """
    tree = store.draft(ids[:-1], max_match, 1, 1)
    reached = min(tree.match_length + 1, max_match)
    if reached < max(found.match_length, 2) or tree.counts is None:
        return
    context = ids[-max_match:-1]
    last = token_texts(store, [*context, ids[-1]])[-1]
    following = zip(tree.tokens.tolist(), tree.counts.tolist(), strict=True)
    texts = [(token_texts(store, [*context, token])[-1], times) for token, times in following]
    longer = [(word, times) for word, times in texts if word.startswith(last) and word != last]
    if not longer or (reached == found.match_length and sum(times for _, times in longer) <= found.match_count):
        return
    named = ", ".join(f"{word!r} {count(times, 'time')}" for word, times in longer[:MOST])
    before = (
        f"the {tree.match_length} tokens before {last!r} are"
        if tree.match_length > 1
        else f"the token before {last!r} is"
    )
    yield (
        f"the text ends inside a token: {before} followed by {named}; "
        f"end the text before {last!r}, or complete the token"
    )
