"""Converts between path scores and conditional acceptance probabilities, and calibrates or reweights a tree's scores."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.decoding.drafters.calibration.confidence import Confidence, learn_draft
from suffolk.serving.decoding.engine.loop.drafter import DraftRequest
from suffolk.serving.decoding.engine.sampling.settings import SamplingSettings

Floats = npt.NDArray[np.float64]
_ROUNDING = 1e-3
"""Tolerance: scores are in single precision."""
BREADTH, ENOUGH = 4, 64
"""For noise reweighting, BREADTH times as many nodes are looked up as may be proposed. This factor adds nodes only up to ENOUGH."""


def rescale(confidence: Confidence, request: DraftRequest, tree: DraftTree) -> DraftTree:
    """``tree`` with its draft probabilities replaced by acceptance probabilities of ``confidence``."""
    draft_probs, depths = conditional_probs(tree), tree.depths().astype(np.int64)
    calibrated = confidence.chances(draft_probs, depths, request.settings.temperature > 0)
    return with_conditional_probs(tree, np.minimum(calibrated, 1.0))


def learn_tree(confidence: Confidence, request: DraftRequest, tree: DraftTree, tokens: npt.NDArray[np.int32]) -> None:
    """Update ``confidence`` from ``tokens``, generated after the root of ``tree``. Scores must be draft probabilities."""
    learn_draft(confidence, request.settings.temperature > 0, tree, conditional_probs(tree), tokens)


def conditional_probs(tree: DraftTree) -> Floats:
    """float64[n], each node's score divided by its parent's score; 0 if the parent's score is 0."""
    above = np.where(tree.parents < 0, 1.0, tree.scores[tree.parents]).astype(np.float64)
    return np.divide(tree.scores, above, out=np.zeros(len(tree)), where=above > 0)


def with_conditional_probs(tree: DraftTree, probs: Floats) -> DraftTree:
    """``tree`` with new scores: the products of ``probs``, float64[n] in 0..1, along paths."""
    scores, depths = probs.copy(), tree.depths()
    for depth in range(2, int(depths.max(initial=0)) + 1):
        level = np.flatnonzero(depths == depth)
        scores[level] *= scores[tree.parents[level]]
    return replace(tree, scores=scores.astype(np.float32))


def normalize_siblings(tree: DraftTree) -> DraftTree:
    """Scale down the conditional probabilities of siblings if their sum exceeds 1, because at most one of them is accepted."""
    probs, parents = conditional_probs(tree), tree.parents + 1
    sums = np.bincount(parents, probs, len(tree) + 1)
    if not np.any(sums > 1 + _ROUNDING):
        return tree
    return with_conditional_probs(tree, probs / np.maximum(1.0, sums)[parents])


def knows_noise(settings: SamplingSettings) -> bool:
    """Whether the target's seeded noise decides which token is sampled.

    With ``rejection`` and ``typical``, other random numbers decide too. At temperature 0 and at top_k 1, nothing is random.
    """
    return settings.temperature > 0 and settings.top_k != 1 and settings.verification == "match"
