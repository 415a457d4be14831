"""Verification ``match``: accept a drafted token where it equals the token sampled from the target (exact for any tree)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def accept(
    tokens: npt.NDArray[np.int32], parents: npt.NDArray[np.int32], sampled: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The accepted nodes of a draft tree, from the top down: int64[k]. Of siblings with the same token the first counts.

    Each row is sampled exactly once, accepted or not. So the text equals that of plain decoding.

    Args:
        tokens: int32[n], the tree's tokens.
        parents: int32[n], each node's parent; -1 for a child of the context.
        sampled: int64[n + 1], the target's token after the context (row 0) and after each node (row node + 1). Below 0 where no
            token is allowed: that node is not accepted.
    """
    rows = parents + 1
    matching = ((tokens == sampled[rows]) & (sampled[1:] >= 0)).nonzero()[0][::-1]
    child = np.full(len(tokens) + 1, -1)
    child[rows[matching]] = matching  # of several values for one place numpy keeps the last: here the first sibling
    path: list[int] = []
    node = int(child[0])
    while node >= 0:
        path.append(node)
        node = int(child[node + 1])
    return np.array(path, np.int64)
