"""Trees whose scores are their drafter's own probabilities, weighed by what these have been worth."""

from __future__ import annotations

import numpy as np

from suffolk.datastore.draft_tree import DraftTree
from suffolk.serving.drafters.calibration.by_class import ByClass
from suffolk.serving.drafters.calibration.confidence import Confidence
from suffolk.serving.drafters.calibration.evidence import evidence, learn_evidence
from suffolk.serving.drafters.calibration.rescale import chances_of, with_chances
from suffolk.serving.drafters.retrieval.retrieved import Ids
from suffolk.serving.engine.loop.drafter import DraftRequest


def trusted(trust: ByClass[Confidence], request: DraftRequest, tree: DraftTree) -> DraftTree:
    """``tree`` with the scores that ``trust`` makes of its own."""
    own, depths = chances_of(tree), tree.depths().astype(np.int64)
    chances = trust[request.request_class].chances(own, depths, request.settings.temperature > 0)
    return with_chances(tree, np.minimum(chances, 1.0))


def learn_trust(trust: ByClass[Confidence], request: DraftRequest, tree: DraftTree, tokens: Ids) -> None:
    """The target's ``tokens`` followed ``tree``, whose scores are its own."""
    own, sampled = chances_of(tree), request.settings.temperature > 0
    found = list(evidence(tree.tokens, tree.parents, own, tokens))
    learn_evidence(trust, request.request_class, sampled, found)
