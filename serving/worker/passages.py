"""Finds the passages of datastores that a draft came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from suffolk.datastore.occurrence import Occurrence
from suffolk.datastore.retriever import Retriever, Tokens
from suffolk.serving.drafters.retrieval.retrieval_scorer import known_end

Passages = dict[str, Any]
"""The passages of one datastore, ready for JSON (docs/reference/step-trace.md)."""
MAX_PASSAGES = 20
"""Most passages of one datastore in an answer."""
MAX_FOLLOWING = 64
"""Most tokens after a passage."""


@runtime_checkable
class NamesDocuments(Protocol):
    """A datastore that knows the documents of its text."""

    def occurrences(self, pattern: str | Tokens, limit: int = 10, context: int = 16) -> list[Occurrence]: ...


def find_passages(
    store: Retriever, context: Sequence[int], tokenizer: Any, limit: int = 3, following: int = 16
) -> Passages:
    """The longest suffix of ``context`` that occurs in ``store``, and where it does, ready for JSON.

    Args:
        context: token ids, oldest first.
        tokenizer: the target's; None to show token ids.
        limit: most passages, spread evenly over all occurrences.
        following: most tokens after each passage.

    Raises the errors of the datastore.
    """
    facts: Passages = {"datastore": store.name}
    if not isinstance(store, NamesDocuments):
        return facts | {"unknown": "a draft service does not name documents; ask it where the datastore is"}
    known = known_end(np.array(context, np.int32), store.vocab_size)[-int(store.info()["order_depth"]) :].tolist()
    match = store.lookup(known, max(1, len(known))) if len(known) else None
    if match is None or not match.length:
        return facts | {"tokens": 0, "text": "", "count": 0, "passages": []}
    pattern = known[len(known) - match.length :]
    return facts | {
        "tokens": match.length,
        "text": _text(tokenizer, pattern),
        "count": match.count,
        "passages": [
            _passage(tokenizer, place, match.length) for place in store.occurrences(pattern, limit, following)
        ],
    }


def _passage(tokenizer: Any, place: Occurrence, length: int) -> dict[str, Any]:
    return {
        "id": place.source,
        "metadata": dict(place.metadata),
        "segment": place.segment,
        "document": place.document,
        "offset": place.offset,
        "following": _text(tokenizer, place.tokens[length:].tolist()),
    }


def _text(tokenizer: Any, ids: Sequence[int]) -> str:
    return " ".join(map(str, ids)) if tokenizer is None else str(tokenizer.decode(ids, skip_special_tokens=False))
