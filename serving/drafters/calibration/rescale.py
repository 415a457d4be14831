"""Chances of nodes behind their parents, and scores of whole paths: the one from the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree

Floats = npt.NDArray[np.float64]
_ROUNDING = 1e-3
"""Scores come in single precision."""


def chances_of(tree: DraftTree) -> Floats:
    """float64[n], of each node its score over its parent's; 0 behind one of score 0."""
    above = np.where(tree.parents < 0, 1.0, tree.scores[tree.parents]).astype(np.float64)
    return np.divide(tree.scores, above, out=np.zeros(len(tree)), where=above > 0)


def with_chances(tree: DraftTree, chances: Floats) -> DraftTree:
    """``tree`` with the products of ``chances`` (float64[n], in 0..1) along paths as its scores."""
    scores, depths = chances.copy(), tree.depths()
    for depth in range(2, int(depths.max(initial=0)) + 1):
        level = np.flatnonzero(depths == depth)
        scores[level] *= scores[tree.parents[level]]
    return replace(tree, scores=scores.astype(np.float32))


def within_one(tree: DraftTree) -> DraftTree:
    """``tree``, in which the chances of siblings add up to 1 at most, as at most one of them is right.

    Those that promise more are brought down in proportion; parents still stand first.
    """
    chances, parents = chances_of(tree), tree.parents + 1
    sums = np.bincount(parents, chances, len(tree) + 1)
    if not np.any(sums > 1 + _ROUNDING):
        return tree
    return with_chances(tree, chances / np.maximum(1.0, sums)[parents])
