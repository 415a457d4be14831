"""Why a text that stands in a datastore may not match: its first and last tokens differ inside a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from suffolk.datastore.retriever import Retriever

MOST = 3
"""Tokens that a hint names."""


def token_texts(store: Retriever, ids: Sequence[int]) -> list[str]:
    """The text of each token of ``ids``, as it stands within the whole."""
    texts, before = [], ""
    for end in range(1, len(ids) + 1):
        whole = store.decode(ids[:end])
        texts.append(whole[len(before) :])
        before = whole
    return texts


def hints(store: Retriever, text: str, ids: Sequence[int], match_length: int, max_match: int) -> Iterator[str]:
    """Lines that say how to write ``text`` so that more of its tokens match; none where all do."""
    if match_length >= min(len(ids), max_match) or len(ids) < 2:
        return
    yield from _end(store, ids, match_length, max_match)
    spaced = store.encode(f" {text}")
    found = store.lookup(spaced, max_match)
    if not text[:1].isspace() and found.length >= min(len(spaced), max_match) > match_length:
        yield (
            f"with a space in front, all {found.length} tokens match, {found.count:,} times: inside a line most words have "
            "other tokens than at the start of a text"
        )


def _end(store: Retriever, ids: Sequence[int], match_length: int, max_match: int) -> Iterator[str]:
    last = token_texts(store, ids[-max_match:])[-1]
    tree = store.draft(ids[:-1], max_match, 1, 1)
    if tree.match_length + 1 <= match_length or tree.counts is None:
        return
    following = zip(tree.tokens.tolist(), tree.counts.tolist(), strict=True)
    context = ids[-max_match:-1]
    texts = [(token_texts(store, [*context, token])[-1], count) for token, count in following]
    longer = [f"{word!r} {count:,} times" for word, count in texts if word.startswith(last) and word != last]
    if longer:
        yield (
            f"the last token {last!r} ends the text inside a token: the {tree.match_length} tokens before it match, and are "
            f"followed by {', '.join(longer[:MOST])}; end the text before {last!r}, or write on"
        )
