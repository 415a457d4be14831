"""Teaches a ``Confidence`` which candidates of a draft were accepted."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from suffolk.serving.decoding.drafters.calibration.confidence import Confidence, Floats


class Nodes(Protocol):
    """The token and the parent of each node; parent -1 is the root."""

    @property
    def tokens(self) -> npt.NDArray[np.integer]: ...
    @property
    def parents(self) -> npt.NDArray[np.integer]: ...


def learn_draft(
    confidence: Confidence, sampled: bool, draft: Nodes, draft_probs: Floats, text: npt.NDArray[np.integer]
) -> list[bool]:
    """Update ``confidence`` from the children of the root and of each accepted node.

    Args:
        sampled: whether the request samples at a temperature above 0.
        draft_probs: float64[nodes], the drafter's probabilities.
        text: the tokens generated after the root.

    Returns:
        Whether the first child was accepted, for the root and for each accepted node.
    """
    node, first = -1, list[bool]()
    for depth, token in enumerate(text.tolist(), 1):
        children = np.flatnonzero(draft.parents == node)
        if not len(children):
            break
        taken = draft.tokens[children] == token
        confidence.learn(draft_probs[children], np.asarray(depth), sampled, taken)
        first.append(bool(taken[0]))
        if not taken.any():
            break
        node = int(children[taken][0])
    return first
