"""Converts traces of steps to JSON (docs/reference/step-trace.md). Does not import torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from suffolk.serving.decoding.drafters.registry import source_name
from suffolk.serving.decoding.engine.loop.step import StepTrace

TokenText = Callable[[int], str]
"""Token id -> its text."""
STEP_NODES = 256
"""Most nodes of one step."""
ANSWER_NODES = 1 << 16
"""Most nodes of an answer, about 8 MB of JSON."""


def trace_json(trace: StepTrace, text: TokenText, most_nodes: int = STEP_NODES) -> dict[str, Any]:
    """One step, ready for JSON. Its tree has the first ``most_nodes`` nodes, which are the likeliest, and all accepted ones."""
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
    """Converts the traces of one answer, with at most ANSWER_NODES nodes beside the accepted ones. Not thread-safe."""

    def __init__(self, text: TokenText, most_nodes: int = ANSWER_NODES) -> None:
        self._text, self._left = text, most_nodes

    def json(self, trace: StepTrace) -> dict[str, Any]:
        """See ``trace_json``."""
        found = trace_json(trace, self._text, min(STEP_NODES, self._left))
        self._left = max(0, self._left - len(found["nodes"]))
        return found
