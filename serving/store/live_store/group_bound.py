"""The bound of a group, which an append keeps."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffolk.datastore import _native
from suffolk.serving.store.live_store.batch import Batch

SLACK = 8
"""A full group is cut to 7/8 of its bound, so that not every append has to remove documents."""


def displaced(index: _native.LiveIndex, batch: Batch, replace: bool, bound: int) -> npt.NDArray[np.uint64]:
    """The documents that an append removes, by their sequences, rising.

    Args:
        replace: whether the batch replaces its groups; else their oldest documents go that do not fit.
        bound: tokens of a group; the batch itself is within it.
    """
    removed = [np.empty(0, np.uint64)]
    for key, added in batch.group_tokens().items():
        if replace:
            removed.append(index.group_documents(key)[0])
            continue
        held = index.group_stats(key)["tokens"]
        if held + added <= bound:
            continue
        sequences, lengths = index.group_documents(key)
        excess = held + added - max(added, bound - bound // SLACK)
        count = int(np.searchsorted(np.cumsum(lengths, dtype=np.int64), excess)) + 1
        removed.append(sequences[:count])
    return np.sort(np.concatenate(removed))
