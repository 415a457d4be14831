"""Verification ``match``: a drafted token is accepted if it equals the token sampled from the target. Exact for any tree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native


def accept(
    tokens: npt.NDArray[np.int32], parents: npt.NDArray[np.int32], sampled: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """int64[k], the accepted nodes of a draft tree, from the top down. The first of equal siblings is used. The C++ function
    ``accepted_path`` (csrc/drafting/tree.cc) chooses them.

    Each row is sampled exactly once, whether or not it is accepted. So the text equals the text of plain decoding.

    Args:
        tokens: int32[n], the tree's tokens.
        parents: int32[n], each node's parent; -1 for a child of the context.
        sampled: int64[n + 1], the target's token after the context (row 0) and after each node (row node + 1). A number below 0
            means that no token is allowed; the row's node is then not accepted.
    """
    return _native.accepted_path(tokens, parents, sampled)
