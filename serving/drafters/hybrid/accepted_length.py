"""Compares a draft with the generated tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree


def accepted_length(tree: DraftTree, tokens: npt.NDArray[np.int32]) -> int:
    """The number of leading ``tokens`` that form a path of ``tree`` from its root."""
    node = -1
    for depth, token in enumerate(tokens.tolist()):
        found = np.flatnonzero((tree.parents == node) & (tree.tokens == token))
        if not len(found):
            return depth
        node = int(found[0])
    return len(tokens)
