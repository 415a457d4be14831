"""Finds the passages of datastores that a draft came from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from suffolk.datastore.documents import Occurrence
from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.retriever import Match, Retriever
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import known_end

Passages = dict[str, Any]
"""The passages of one datastore, ready for JSON (docs/reference/step-trace.md)."""
NO_MATCH = Match(0, 0)
MAX_PASSAGES = 20
"""Most passages of one datastore in an answer."""
MAX_FOLLOWING = 64
"""Most tokens after a passage."""


def find_passages(
    store: Retriever, context: Sequence[int], tokenizer: Any, limit: int = 3, following: int = 16
) -> Passages:
    """The longest suffix of ``context`` that occurs in ``store``, and where it does, ready for JSON.

    Args:
        context: token ids, oldest first.
        tokenizer: the target's; None to show token ids.
        limit: most passages, spread evenly over all occurrences.
        following: most tokens after each passage.

    An error of the datastore, such as a draft service that shows no occurrences, becomes the value of "unknown".
    """
    facts: Passages = {"datastore": store.name}
    try:
        known = known_end(np.array(context, np.int32), store.vocab_size)[-int(store.info()["order_depth"]) :].tolist()
        match = store.lookup(known, max(1, len(known))) if known else NO_MATCH
        pattern = known[len(known) - match.length :]
        places = store.occurrences(pattern, limit, following) if pattern else []
    except SuffolkError as error:
        return facts | {"unknown": str(error)}
    return facts | {
        "tokens": match.length,
        "text": _text(tokenizer, pattern),
        "count": match.count,
        "passages": [_passage(tokenizer, place, match.length) for place in places],
    }


def _passage(tokenizer: Any, place: Occurrence, length: int) -> dict[str, Any]:
    return {
        "datastore": place.datastore,
        "id": place.source,
        "metadata": dict(place.metadata),
        "segment": place.segment,
        "document": place.document,
        "offset": place.offset,
        "following": _text(tokenizer, place.tokens[length:].tolist()),
    }


def _text(tokenizer: Any, ids: Sequence[int]) -> str:
    return " ".join(map(str, ids)) if tokenizer is None else str(tokenizer.decode(ids, skip_special_tokens=False))
