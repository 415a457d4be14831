"""The text of single tokens, as it stands within their context."""

from __future__ import annotations

from collections.abc import Sequence

from suffolk.datastore.context_query import Tokens
from suffolk.datastore.draft_tree import DraftTree
from suffolk.datastore.occurrence import Occurrence
from suffolk.datastore.retriever import Retriever


def token_texts(store: Retriever, ids: Tokens) -> list[str]:
    """The text of each token of ``ids``. A character of several tokens belongs to the last of them; the others show U+FFFD."""
    return _texts(store, [], [int(token) for token in ids], range(-1, len(ids) - 1))


def node_texts(store: Retriever, context: Tokens, tree: DraftTree) -> list[str]:
    """The text of each node of a draft ``tree`` after ``context``; see ``token_texts``."""
    last = [int(token) for token in context[-1:]]  # some decoders drop the space before the first token
    return _texts(store, last, tree.tokens.tolist(), tree.parents.tolist())


def window_texts(store: Retriever, place: Occurrence, pattern: int) -> tuple[str, str, str]:
    """The text before an occurrence, that of its ``pattern`` first tokens, and the text after them."""
    before, tokens = place.before.tolist(), place.tokens.tolist()
    start = len(_whole(store.decode(before)))
    end = len(_whole(store.decode(before + tokens[:pattern])))
    text = store.decode(before + tokens)
    return text[:start], text[start:end], text[end:]


def _texts(store: Retriever, before: list[int], tokens: Sequence[int], parents: Sequence[int]) -> list[str]:
    paths: list[list[int]] = []
    ends: list[int] = []  # characters of the whole text up to each token
    texts: list[str] = []
    start = len(_whole(store.decode(before)))
    for token, parent in zip(tokens, parents, strict=True):
        paths.append([*(before if parent < 0 else paths[parent]), token])
        text = store.decode(paths[-1])
        ends.append(len(_whole(text)))
        texts.append(text[start if parent < 0 else ends[parent] :])
    return texts


def _whole(text: str) -> str:
    """``text`` without the incomplete character at its end."""
    return text.rstrip("\ufffd")
