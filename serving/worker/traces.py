"""Traces of steps as JSON, with the passages that drafts came from (docs/reference/step-trace.md). Does not import torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from suffolk.datastore.errors import SuffolkError
from suffolk.datastore.retriever import Match, Retriever
from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.drafters.retrieval.retrieval_scorer import known_end
from suffolk.serving.decoding.engine.loop.step import StepTrace

TokenText = Callable[[int], str]
"""Token id -> its text."""
STEP_NODES = 256
"""The most nodes of one step."""
ANSWER_NODES = 1 << 16
"""The most nodes of an answer, about 8 MB of JSON."""
Passages = dict[str, Any]
"""The passages of one datastore, ready for JSON (docs/reference/step-trace.md)."""
MAX_PASSAGES = 20
"""The most passages of one datastore in an answer."""
MAX_FOLLOWING = 64
"""The most tokens after a passage."""


def trace_json(trace: StepTrace, text: TokenText, most_nodes: int = STEP_NODES) -> dict[str, Any]:
    """One step, ready for JSON. Its tree has the first ``most_nodes`` nodes, which are the likeliest, and all accepted nodes."""
    places = np.arange(len(trace.tree))
    accepted = np.isin(places, trace.accepted)
    kept = (places < most_nodes) | accepted
    tree = trace.tree.where(kept)
    columns = (tree.tokens, tree.parents, tree.scores, tree.sources, places[kept] < trace.verified, accepted[kept])
    nodes = [
        {
            "token": token,
            "text": text(token),
            "parent": parent,
            "probability": round(score, 4),
            "sources": source_names(bits),
            "verified": is_verified,
            "accepted": is_accepted,
        }
        for token, parent, score, bits, is_verified, is_accepted in zip(
            *(each.tolist() for each in columns), strict=True
        )
    ]
    return {
        "context": list(trace.context),
        "context_end": text(trace.context[-1]),
        "nodes": nodes,
        "nodes_left_out": len(trace.tree) - len(tree),
        "sampled": None if trace.sampled is None else {"token": trace.sampled, "text": text(trace.sampled)},
        "pieces": [{"text": piece, "sources": source_names(bits)} for piece, bits in trace.pieces],
        "seconds": {part: round(seconds, 6) for part, seconds in trace.seconds.items()},
    }


def source_names(bits: int) -> list[str]:
    """The names of the sources in ``bits``; none if the target sampled the token."""
    return source_name(bits).split("+") if bits else []


class TraceBudget:
    """Converts the traces of one answer, with at most ANSWER_NODES nodes beside the accepted nodes. Not thread-safe."""

    def __init__(self, text: TokenText, most_nodes: int = ANSWER_NODES) -> None:
        self._text, self._left = text, most_nodes

    def json(self, trace: StepTrace) -> dict[str, Any]:
        """See ``trace_json``."""
        found = trace_json(trace, self._text, min(STEP_NODES, self._left))
        self._left = max(0, self._left - len(found["nodes"]))
        return found


def find_passages(
    store: Retriever, context: Sequence[int], tokenizer: Any, limit: int = 3, following: int = 16
) -> Passages:
    """The longest suffix of ``context`` that occurs in ``store``, and where it occurs, ready for JSON.

    Args:
        context: token ids, oldest first.
        tokenizer: the target's; None to show token ids.
        limit: the most passages, spread evenly over all occurrences.
        following: the most tokens after each passage.

    An error of the datastore, such as a draft service that shows no occurrences, becomes the value of "unknown".
    """
    facts: Passages = {"datastore": store.name}
    try:
        known = known_end(np.array(context, np.int32), store.vocab_size)[-int(store.info()["order_depth"]) :].tolist()
        match = store.lookup(known, max(1, len(known))) if known else Match(0, 0)
        pattern = known[len(known) - match.length :]
        places = store.occurrences(pattern, limit, following) if pattern else []
    except SuffolkError as error:
        return facts | {"unknown": str(error)}
    return facts | {
        "tokens": match.length,
        "text": _text(tokenizer, pattern),
        "count": match.count,
        "passages": [
            place.facts() | {"following": _text(tokenizer, place.tokens[match.length :].tolist())} for place in places
        ],
    }


def _text(tokenizer: Any, ids: Sequence[int]) -> str:
    return " ".join(map(str, ids)) if tokenizer is None else str(tokenizer.decode(ids, skip_special_tokens=False))
