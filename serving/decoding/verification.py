"""Verification ``match``: follow the target's own draws down the tree (sample-then-match; exact for any tree)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def accept(
    tokens: npt.NDArray[np.int32], parents: npt.NDArray[np.int32], drawn: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The accepted nodes, from the top down: int64[k].

    Args:
        tokens: int32[n], the tree's tokens.
        parents: int32[n], each node's parent; -1 for a child of the context.
        drawn: int64[n + 1], what the target drew after the context (row 0) and after each node (row node + 1); below 0 where
            no token can be drawn, which is never followed: the draw in front of it is the last one committed.

    One draw per node is committed even on a mismatch: never drawn again, so that the output is the target's own.
    """
    path: list[int] = []
    node = -1
    while True:
        matching = np.flatnonzero((parents == node) & (tokens == drawn[node + 1]) & (drawn[1:] >= 0))
        if not len(matching):
            return np.asarray(path, np.int64)
        node = int(matching[0])
        path.append(node)
