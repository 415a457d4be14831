"""What ``suffolk lookup`` finds, as an object that it prints as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from suffolk.build_index.report import count
from suffolk.cli.documents import document_id
from suffolk.cli.lookup_options import Options
from suffolk.datastore.datastore import Datastore
from suffolk.datastore.documents import Occurrence
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.errors import NotFound, PermissionDenied, Unsupported
from suffolk.datastore.retriever import MAX_NODES, Retriever
from suffolk.datastore.tokenizer import node_texts, token_texts, window_texts
from suffolk.datastore.tree_paths import path_counts, tree_paths

BEFORE = 8
"""Tokens before an occurrence."""


MOST = 3
"""Tokens that a hint names."""


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
    max_nodes = options.max_nodes or max(64, 4 * options.top)
    tree = store.draft(ids, options.max_match, options.min_match, options.max_depth, min(max_nodes, MAX_NODES))
    matched = ids[len(ids) - tree.match_length :]
    report: dict[str, Any] = {
        "context_tokens": len(ids),
        "tokens": token_texts(store, ids[-options.max_match :]) if has_text else [str(each) for each in ids],
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
    except (PermissionDenied, Unsupported) as error:  # of a draft service
        return {"occurrences": [], "names_documents": False, "occurrences_problem": str(error)}
    places = [
        {
            "datastore": place.datastore,
            "id": place.source,
            "metadata": dict(place.metadata),
            "segment": place.segment,
            "document": place.document,
            "offset": place.offset,
            "text": _text(store, place.tokens.tolist(), has_text),
            "parts": window_texts(store, place, len(matched)) if has_text else _window_ids(place, len(matched)),
            "shown": document_id(place),
        }
        for place in found
    ]
    return {"occurrences": places, "names_documents": True}


def _has_tokenizer(store: Retriever) -> bool:
    """Whether ids can be shown as text. Looking them up needs no tokenizer."""
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
    """A hint if ``ids`` end inside a token.

    A longer last token then gives a longer match than ``found``, or a more frequent one.
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
