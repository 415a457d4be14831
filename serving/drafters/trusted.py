"""Trees whose scores are their drafter's own probabilities, weighed by what these have been worth."""

from __future__ import annotations

import numpy as np

from datastore.draft_tree import DraftTree
from serving.decoding.drafter import DraftRequest
from serving.drafters.calibration.by_class import ByClass
from serving.drafters.calibration.confidence import Confidence
from serving.drafters.calibration.evidence import evidence, learn_evidence
from serving.drafters.retrieved import Ids
from serving.drafters.tree_chances import chances_of, with_chances


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
