"""Puts a source's raw tree into the order that the decoding loop cuts at: falling probability, parents first."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from datastore.draft_tree import DraftTree, Source


def ranked(tree: DraftTree, scores: npt.NDArray[np.float32], source: Source, max_nodes: int) -> DraftTree:
    """The best ``max_nodes`` nodes of ``tree`` under ``scores``, in which no child may exceed its parent."""
    order = np.argsort(-scores, kind="stable")  # stable: of equals, parents stay first
    row = np.empty(len(order) + 1, np.int32)
    row[order] = np.arange(len(order), dtype=np.int32)
    row[-1] = -1  # where parent -1 points
    order = order[:max_nodes]
    counts = None if tree.counts is None else tree.counts[order]
    sources = np.full(len(order), int(source), np.uint8)
    return DraftTree(
        tree.tokens[order],
        row[tree.parents[order]],
        scores[order],
        sources,
        counts,
        tree.match_length,
        tree.match_count,
    )
