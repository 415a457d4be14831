"""From the native core's arrays to a DraftTree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from datastore.draft_tree import DraftTree, Source


def tree_from_arrays(
    tokens: npt.NDArray[np.int32],
    parents: npt.NDArray[np.int32],
    counts: npt.NDArray[np.uint64],
    match_length: int,
    match_count: int,
    source: Source,
) -> DraftTree:
    """A tree whose scores are the share of the match's occurrences that go on with each node's path."""
    scores = (counts / max(match_count, 1)).astype(np.float32)
    sources = np.full(len(tokens), int(source), np.uint8)
    return DraftTree(tokens, parents, scores, sources, counts, match_length, match_count)
