"""Learns from the target's tokens behind a draft: which candidates were tried, and which were accepted."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from suffolk.serving.drafters.calibration.confidence import Confidence, Floats


class Nodes(Protocol):
    """A draft: the token and the parent (-1: the root) of each node."""

    @property
    def tokens(self) -> npt.NDArray[np.integer]: ...
    @property
    def parents(self) -> npt.NDArray[np.integer]: ...


def learn_draft(
    confidence: Confidence, sampled: bool, draft: Nodes, draft_probs: Floats, text: npt.NDArray[np.integer]
) -> list[bool]:
    """Update ``confidence`` at each node on the path of the target's ``text``, the root included.

    ``draft_probs``: float64[nodes]; ``sampled``: at a temperature above 0. Returns whether each node's first child was accepted.
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
