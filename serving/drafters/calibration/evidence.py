"""What the target's own tokens say about a draft."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from suffolk.serving.drafters.calibration.by_class import ByClass
from suffolk.serving.drafters.calibration.confidence import Confidence, Floats

Evidence = tuple[Floats, int, npt.NDArray[np.bool_]]
"""Of the children of a node on the target's path: what their drafter said of them, their depth, and which the target took."""


def evidence(
    tokens: npt.NDArray[np.integer], parents: npt.NDArray[np.integer], own: Floats, text: npt.NDArray[np.integer]
) -> Iterator[Evidence]:
    """For each node on the path of the target's ``text``, the root included: what ``own`` says of its children, in their order,
    their depth, and which of them the target took. The tree: ``tokens``, ``parents`` and ``own`` by node."""
    node = -1
    for depth, token in enumerate(text.tolist(), 1):
        children = np.flatnonzero(parents == node)
        if not len(children):
            return
        taken = tokens[children] == token
        yield own[children], depth, taken
        if not taken.any():
            return
        node = int(children[taken][0])


def learn_evidence(
    confidence: ByClass[Confidence], request_class: str, sampled: bool, found: Sequence[Evidence]
) -> None:
    """Let all who learn from requests of that class know what was ``found``; ``sampled``: at a temperature above 0."""
    for each in confidence.taught(request_class):
        for own, depth, taken in found:
            each.learn(own, np.asarray(depth), sampled, taken)
