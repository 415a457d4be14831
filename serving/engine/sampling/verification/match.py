"""Verification ``match``: follow the target's own draws down the tree (sample-then-match; exact for any tree)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def accept(
    tokens: npt.NDArray[np.int32], parents: npt.NDArray[np.int32], drawn: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The accepted nodes, from the top down: int64[k]. Of siblings with the same token the first counts.

    Args:
        tokens: int32[n], the tree's tokens.
        parents: int32[n], each node's parent; -1 for a child of the context.
        drawn: int64[n + 1], what the target drew after the context (row 0) and after each node (row node + 1); below 0 where
            no token can be drawn, which is never followed: the draw in front of it is the last one committed.

    One draw per node is committed even on a mismatch: never drawn again, so that the output is the target's own.
    """
    rows = parents + 1
    matching = ((tokens == drawn[rows]) & (drawn[1:] >= 0)).nonzero()[0][::-1]
    child = np.full(len(tokens) + 1, -1)
    child[rows[matching]] = matching  # numpy keeps the last of several values for one place: here the first sibling
    path: list[int] = []
    node = int(child[0])
    while node >= 0:
        path.append(node)
        node = int(child[node + 1])
    return np.array(path, np.int64)
