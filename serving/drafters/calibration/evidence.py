"""Compares a draft with the target's tokens: which candidates were tried, and which were accepted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from suffolk.serving.drafters.calibration.confidence import Confidence, Floats

Evidence = tuple[Floats, int, npt.NDArray[np.bool_]]
"""Of the children of a node on the target's path: their draft probabilities, their depth, and which one the target sampled."""


def evidence(
    tokens: npt.NDArray[np.integer],
    parents: npt.NDArray[np.integer],
    draft_probs: Floats,
    text: npt.NDArray[np.integer],
) -> Iterator[Evidence]:
    """The evidence at each node on the path of the target's ``text``, the root included.

    The tree: ``tokens``, ``parents`` and ``draft_probs`` by node.
    """
    node = -1
    for depth, token in enumerate(text.tolist(), 1):
        children = np.flatnonzero(parents == node)
        if not len(children):
            return
        taken = tokens[children] == token
        yield draft_probs[children], depth, taken
        if not taken.any():
            return
        node = int(children[taken][0])


def learn_evidence(confidence: Confidence, sampled: bool, found: Sequence[Evidence]) -> None:
    """Update ``confidence``; ``sampled``: at a temperature above 0."""
    for draft_probs, depth, taken in found:
        confidence.learn(draft_probs, np.asarray(depth), sampled, taken)
