"""What the target's own tokens say about a draft."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from serving.drafters.neural.growing_tree import ROOT, Floats


def evidence(
    tokens: npt.NDArray[np.integer], parents: npt.NDArray[np.integer], own: Floats, text: npt.NDArray[np.integer]
) -> Iterator[tuple[Floats, int, npt.NDArray[np.bool_]]]:
    """For each node on the path of the target's ``text``, the root included: what ``own`` says of its children, in their order,
    their depth, and which of them the target took. The tree: ``tokens``, ``parents`` and ``own`` by node."""
    node = ROOT
    for depth, token in enumerate(text.tolist(), 1):
        children = np.flatnonzero(parents == node)
        if not len(children):
            return
        taken = tokens[children] == token
        yield own[children], depth, taken
        if not taken.any():
            return
        node = int(children[taken][0])
