"""Gives hints if a text in a datastore matches too little or too rarely because its first or last token differs there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from suffolk.build_index.report import count
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.retriever import Retriever
from suffolk.datastore.token_texts import token_texts

MOST = 3
"""Tokens that a hint names."""


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
